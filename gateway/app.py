"""The composition root: Settings → a gateway. The only file that picks concrete classes."""

import asyncio
import contextlib
import functools
import gc
import logging
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from gateway.accounting import GatewayCollector, Ledger
from gateway.admission import Admission
from gateway.auth import Authenticator, Key
from gateway.dispatch import Dispatcher
from gateway.endpoints import Completions, Models, admin_app, public_app
from gateway.errors import Draining
from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes
from gateway.intake import Intake
from gateway.journal import Journal
from gateway.limits import RateLimiter
from gateway.model import Endpoint, Model, Tenant
from gateway.outbox import Outbox, Write
from gateway.pipeline import Corridor
from gateway.relay import Relay
from gateway.routing import POLICIES
from gateway.server import LAST_WORDS_S, listen, running, until_told_to_stop
from gateway.settings import Settings, TenantSettings, WorkerSettings
from gateway.stores.memory import MemoryStore
from gateway.underway import UnderWay
from gateway.upstream import Timeouts, WorkerClient

log = logging.getLogger(__name__)

FOLD_EVERY_S = 0.1
ANONYMOUS = "anonymous"  # the tenant of everyone where no key is required


class Gateway:
    """Everything one process needs to serve. Make it inside a running loop; `async with` runs it."""

    def __init__(self, settings: Settings, journal: Journal | None = None) -> None:
        clock = time.monotonic  # the loop's own clock may stand still for a millisecond
        self._settings = settings
        self._journal = journal or Journal()
        self._stack = contextlib.AsyncExitStack()
        self._draining = False
        later = functools.partial(asyncio.get_running_loop().call_later, FOLD_EVERY_S)
        self._ledger = Ledger(clock, self._journal.write, later)
        self._catalogue = _catalogue(settings)
        self.fleet = Fleet(
            settings.fleet, [Member(of.id, of.model, of.max_concurrency) for of in settings.workers]
        )
        self._tls = _tls(settings)
        outbox = Outbox()
        self._clients = {of.id: _client(of, settings, self._tls, outbox.write) for of in settings.workers}
        self.under_way = UnderWay(clock, settings.server.client_stall_s)
        policy = POLICIES[settings.routing.policy]
        dispatcher = Dispatcher(self.fleet, policy, self._clients, self._ledger, clock)
        self.admission = Admission(settings.admission, dispatcher.place, clock, self._ledger.queued)
        self.fleet.on_room = self.admission.wake
        corridor = Corridor(
            auth=_authenticator(settings),
            intake=Intake(settings.intake, settings.routing.bucket_edges, self._catalogue),
            limits=RateLimiter(MemoryStore()),
            admission=self.admission,
            dispatcher=dispatcher,
            relay=Relay(clock),
            ledger=self._ledger,
        )
        self.public = self._public_app(corridor, clock)
        self.admin = self._admin_app()

    def _public_app(self, corridor: Corridor, clock: Callable[[], float]) -> ASGIApp:
        server = self._settings.server
        completions = [
            Completions(endpoint, corridor, self._ledger, server, clock, self.under_way)
            for endpoint in Endpoint
        ]
        models = Models(corridor.auth, self._catalogue, corridor.limits)
        app = public_app(completions, models, self.fleet, lambda: self._draining)
        return _with_cors(app, server.cors_origins) if server.cors_origins else app

    def _admin_app(self) -> ASGIApp:
        registry = CollectorRegistry()
        registry.register(
            GatewayCollector(
                self._ledger,
                buckets=len(self._settings.routing.bucket_edges) + 1,
                depth=self.admission.depth,
                workers=lambda: [(member.snapshot(), member.up) for member in self.fleet.members.values()],
            )
        )
        ProcessCollector(registry=registry)
        return admin_app(lambda: generate_latest(registry))

    async def __aenter__(self) -> "Gateway":
        origins = {of.id: Origin(of.url, _credentials(of)) for of in self._settings.workers}
        probes = Probes(self._settings.fleet, self.fleet, self._catalogue, origins, self._tls)
        await self._stack.enter_async_context(probes)
        self._sweeper = asyncio.create_task(self.under_way.watch_for_stalls(), name="stalled callers")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sweeper.cancel()
        await self._stack.aclose()
        for client in self._clients.values():
            await client.aclose()
        self.flush()

    def flush(self) -> None:
        """Count and write out what was put off."""
        self._ledger.fold()
        self._journal.flush()

    def on(self, public: socket.socket, admin: socket.socket) -> list[tuple[ASGIApp, socket.socket]]:
        """Which application is served on which socket."""
        return [(self.public, public), (self.admin, admin)]

    async def drain(self, hurry: asyncio.Event) -> None:
        """Take nothing new, let what is under way end for drain_s or until `hurry`, then send it away."""
        self._draining = True
        self.admission.drain()
        log.info("draining: %d requests under way", len(self.under_way))
        ended = asyncio.create_task(self.under_way.empty())
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait(
            (ended, hurried), timeout=self._settings.server.drain_s, return_when=asyncio.FIRST_COMPLETED
        )
        for waiting in (ended, hurried):
            waiting.cancel()
        self.under_way.send_away(
            Draining("This gateway shut down before the answer was complete.", retry_after_s=1)
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self.under_way.empty()


async def run(settings: Settings) -> None:
    """Serve until a signal. Raises PortTaken."""
    server = settings.server
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(listen("port", server.host, server.port))
        admin = stack.enter_context(listen("admin_port", server.admin_host, server.admin_port))
        async with Gateway(settings) as gateway, running(gateway.on(public, admin), server):
            _tune_garbage_collection()
            log.info("serving on %s, metrics on %s", _shown(public), _shown(admin))
            await until_told_to_stop(gateway.drain)


def _tune_garbage_collection() -> None:
    """What is there by now stays, and a request makes no cycles: look less often, and not at that."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"


def _catalogue(settings: Settings) -> Catalogue:
    return Catalogue(
        {
            Model(of.name, of.max_model_len, of.default_max_tokens, of.max_output_tokens): of.aliases
            for of in settings.models
        }
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """Made only where it is needed: reading the system's certificates takes longer than all the rest."""
    if any(worker.url.startswith("https:") for worker in settings.workers):
        return ssl.create_default_context(cafile=settings.upstream.ca_file or None)
    return None


def _client(
    worker: WorkerSettings, settings: Settings, tls: ssl.SSLContext | None, write: Write
) -> WorkerClient:
    upstream = settings.upstream
    return WorkerClient(
        worker.url,
        timeouts=Timeouts(upstream.connect_timeout_s, upstream.first_byte_timeout_s, upstream.gap_timeout_s),
        idle_s=upstream.idle_s,
        max_age_s=upstream.max_age_s,
        tls=tls,
        write=write,
        headers=[
            (b"content-type", b"application/json"),
            (b"accept-encoding", b"identity"),  # the relay reads along
            *((name.encode(), value.encode()) for name, value in _credentials(worker).items()),
        ],
    )


def _credentials(worker: WorkerSettings) -> dict[str, str]:
    return {"authorization": f"Bearer {os.environ[worker.api_key_env]}"} if worker.api_key_env else {}


def _authenticator(settings: Settings) -> Authenticator:
    tenants = {of.id: _tenant(of) for of in settings.tenants}
    secret = settings.auth.cache_salt_secret.get_secret_value().encode() or secrets.token_bytes(32)
    anonymous = None if settings.auth.required else tenants.get(ANONYMOUS, Tenant(ANONYMOUS))
    return Authenticator(
        {Key(of.id, of.sha256): tenants[of.tenant] for of in settings.keys}, secret, anonymous
    )


def _tenant(of: TenantSettings) -> Tenant:
    return Tenant(
        of.id,
        frozenset(of.models),
        of.requests_per_minute,
        of.tokens_per_minute,
        of.max_concurrency,
        of.weight,
        of.priority,
    )


def _with_cors(app: ASGIApp, origins: list[str]) -> ASGIApp:
    exposed = ["x-request-id", "retry-after", "retry-after-ms", "x-should-retry", "openai-processing-ms"]
    exposed += [
        f"x-ratelimit-{what}-{kind}"
        for what in ("limit", "remaining", "reset")
        for kind in ("requests", "tokens")
    ]
    return CORSMiddleware(
        app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=exposed
    )
