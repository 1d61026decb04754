"""Settings → the parts of a gateway that need more than their constructor."""

import functools
import os
import secrets
import ssl
from collections.abc import Callable

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from gateway.admission import Admission
from gateway.auth import Authenticator, Directory, FileDirectory
from gateway.crew import Crew, Hand
from gateway.dispatch import Dispatcher
from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes, Slot
from gateway.intake import Intake
from gateway.intake.lengths import Lengths
from gateway.model import Model, Tenant, WorkerSpec
from gateway.outbox import Write
from gateway.peers import Others
from gateway.settings import Settings
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


def models(settings: Settings) -> dict[Model, list[str]]:
    """Each with its aliases."""
    return {
        Model(of.name, of.max_model_len, of.default_max_tokens, of.max_output_tokens): of.aliases
        for of in settings.models
    }


def catalogue(settings: Settings) -> Catalogue:
    return Catalogue(models(settings))


def workers(settings: Settings) -> list[WorkerSpec]:
    """Those of the file."""
    return [
        WorkerSpec(of.id, of.url, of.model, of.max_concurrency, of.api_key_env) for of in settings.workers
    ]


def intake(settings: Settings, models: Catalogue) -> Intake:
    routing = settings.routing
    lengths = Lengths(routing.bucket_edges, routing.long_prompt_tokens, routing.learn_long_prompts)
    return Intake(settings.intake, lengths, models)


def fleet(settings: Settings, clock: Callable[[], float], others: Others | None) -> Fleet:
    """Without workers."""
    return Fleet(settings.fleet, (), clock, settings.routing.max_long_prefills, others)


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


def crew(settings: Settings, of: Fleet, models: Catalogue, intake: Intake, write: Write) -> Crew:
    """Without workers. write: sends small requests."""
    trusted = functools.cache(functools.partial(tls, settings))
    probes = Probes(settings.fleet, of, models, trusted)

    def count(workers: int) -> None:
        """Where there is but one, nobody asks which has a prompt in its cache."""
        intake.chains = settings.routing.prefix_affinity and workers > 1

    return Crew(of, probes, models, lambda spec: hand(spec, settings, trusted, write), count)


def hand(spec: WorkerSpec, settings: Settings, trusted: Callable[[], ssl.SSLContext], write: Write) -> Hand:
    upstream = settings.upstream
    own = credentials(spec)
    client = WorkerClient(
        spec.url,
        timeouts=Timeouts(upstream.connect_timeout_s, upstream.first_byte_timeout_s, upstream.gap_timeout_s),
        idle_s=upstream.idle_s,
        max_age_s=upstream.max_age_s,
        tls=trusted() if spec.url.startswith("https:") else None,
        write=write,
        headers=[
            (b"content-type", b"application/json"),
            (b"accept-encoding", b"identity"),  # the relay reads along
            *((name.encode(), value.encode()) for name, value in own.items()),
        ],
    )
    is_adaptive = settings.routing.adaptive_limit
    member = Member(spec.id, spec.model, spec.max_concurrency, is_adaptive=is_adaptive)
    # vLLM that was told to end closes its listener, and leaves open what it has without a further byte.
    patience_s = settings.fleet.failures * settings.fleet.probe_interval_s
    on_gone = functools.partial(client.give_up, patience_s)
    return Hand(spec, member, client, Origin(spec.url, own, on_gone))


def tls(settings: Settings) -> ssl.SSLContext:
    """Made only where it is needed: reading the system's certificates takes longer than all the rest."""
    return ssl.create_default_context(cafile=settings.upstream.ca_file or None)


def credentials(spec: WorkerSpec) -> dict[str, str]:
    return {"authorization": f"Bearer {os.environ[spec.api_key_env]}"} if spec.api_key_env else {}


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
