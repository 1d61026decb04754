"""Settings → the parts of a gateway that need more than their constructor."""

import os
import secrets
import ssl
from collections.abc import Callable

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from gateway.admission import Admission
from gateway.auth import Authenticator, Directory, FileDirectory
from gateway.dispatch import Dispatcher
from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes, Slot
from gateway.intake import Intake
from gateway.intake.lengths import Lengths
from gateway.model import Model, Tenant
from gateway.outbox import Write
from gateway.peers import Others
from gateway.settings import Settings, WorkerSettings
from gateway.sharing import Sharing
from gateway.upstream import Timeouts, WorkerClient

ANONYMOUS = "anonymous"  # the tenant of everyone where no key is required


def authenticator(settings: Settings, directory: Directory | None, salt_secret: bytes) -> Authenticator:
    anonymous = None if settings.auth.required else Tenant(ANONYMOUS)
    file = FileDirectory(settings.tenants, settings.keys)
    return Authenticator(file, salt_secret, directory=directory, anonymous=anonymous)


def salt_secret(settings: Settings) -> bytes:
    """The settings' own, or a new one."""
    return settings.auth.cache_salt_secret.get_secret_value().encode() or secrets.token_bytes(32)


def catalogue(settings: Settings) -> Catalogue:
    return Catalogue(
        {
            Model(of.name, of.max_model_len, of.default_max_tokens, of.max_output_tokens): of.aliases
            for of in settings.models
        }
    )


def intake(settings: Settings, models: Catalogue) -> Intake:
    routing = settings.routing
    lengths = Lengths(routing.bucket_edges, routing.long_prompt_tokens, routing.learn_long_prompts)
    chains = routing.prefix_affinity and len(settings.workers) > 1
    return Intake(settings.intake, lengths, models, chains)


def fleet(settings: Settings, clock: Callable[[], float], others: Others | None) -> Fleet:
    is_adaptive = settings.routing.adaptive_limit
    members = [
        Member(of.id, of.model, of.max_concurrency, is_adaptive=is_adaptive) for of in settings.workers
    ]
    return Fleet(settings.fleet, members, clock, settings.routing.max_long_prefills, others)


def admission(
    settings: Settings,
    dispatcher: Dispatcher,
    of: Fleet,
    observe: Callable[[int, float, str], None],
    clock: Callable[[], float],
) -> Admission[Slot]:
    return Admission(settings.admission, dispatcher.place, clock, observe, of.capacity, of.is_confined)


def sharing(of: Fleet, queue: Admission[Slot], others: Others, clock: Callable[[], float]) -> Sharing:
    made = Sharing(of, queue, others, clock)
    queue.on_settled = made.settled
    return made


def probes(settings: Settings, of: Fleet, models: Catalogue, trusted: ssl.SSLContext | None) -> Probes:
    origins = {worker.id: Origin(worker.url, credentials(worker)) for worker in settings.workers}
    return Probes(settings.fleet, of, models, origins, trusted)


def tls(settings: Settings) -> ssl.SSLContext | None:
    """Made only where it is needed: reading the system's certificates takes longer than all the rest."""
    if any(worker.url.startswith("https:") for worker in settings.workers):
        return ssl.create_default_context(cafile=settings.upstream.ca_file or None)
    return None


def client(
    worker: WorkerSettings, settings: Settings, trusted: ssl.SSLContext | None, write: Write
) -> WorkerClient:
    upstream = settings.upstream
    return WorkerClient(
        worker.url,
        timeouts=Timeouts(upstream.connect_timeout_s, upstream.first_byte_timeout_s, upstream.gap_timeout_s),
        idle_s=upstream.idle_s,
        max_age_s=upstream.max_age_s,
        tls=trusted,
        write=write,
        headers=[
            (b"content-type", b"application/json"),
            (b"accept-encoding", b"identity"),  # the relay reads along
            *((name.encode(), value.encode()) for name, value in credentials(worker).items()),
        ],
    )


def credentials(worker: WorkerSettings) -> dict[str, str]:
    return {"authorization": f"Bearer {os.environ[worker.api_key_env]}"} if worker.api_key_env else {}


def with_cors(app: ASGIApp, origins: list[str]) -> ASGIApp:
    exposed = ["x-request-id", "retry-after", "retry-after-ms", "x-should-retry", "openai-processing-ms"]
    exposed += [
        f"x-ratelimit-{what}-{kind}"
        for what in ("limit", "remaining", "reset")
        for kind in ("requests", "tokens")
    ]
    return CORSMiddleware(
        app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=exposed
    )
