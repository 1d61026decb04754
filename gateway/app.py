"""The composition root: Settings → a gateway, and one or several processes that serve with it."""

import asyncio
import contextlib
import functools
import gc
import logging
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import uvloop
from starlette.types import ASGIApp

from gateway import parts
from gateway.accepting import Place
from gateway.accounting import Ledger
from gateway.admin import AdminKey, Keys, Metering, Tenants, Workers, admin_app
from gateway.auth import FileDirectory
from gateway.backing import backing
from gateway.dispatch import Dispatcher
from gateway.endpoints import Completions, Models, public_app
from gateway.errors import Draining
from gateway.fleet import Roster
from gateway.journal import Journal
from gateway.keyring import Keyring
from gateway.limits import RateLimiter
from gateway.metrics import Board, Metrics, Source
from gateway.model import Endpoint, Trip
from gateway.outbox import Outbox
from gateway.peers import Others
from gateway.pipeline import Corridor
from gateway.processes import Parent, Seat
from gateway.relay import Relay
from gateway.reload import Watcher
from gateway.routing import POLICIES
from gateway.server import LAST_WORDS_S, listen, running, until_told_to_stop
from gateway.settings import Settings
from gateway.underway import UnderWay
from gateway.usage import Meter, Records

log = logging.getLogger(__name__)

FOLD_EVERY_S = 0.1
FILE = "the configuration file"  # who says that a worker is there


class Gateway:
    """Everything one process needs to serve. Make it inside a running loop; `async with` runs it.

    seat: this process's place among several that share the sockets. salt_secret: in place of the settings'
    own, where they have none. Raises RecordsUnwritable.
    """

    def __init__(
        self,
        settings: Settings,
        journal: Journal | None = None,
        seat: Seat | None = None,
        salt_secret: bytes = b"",
    ) -> None:
        clock = time.monotonic  # the loop's own clock may stand still for a millisecond
        self._settings = settings
        self._journal = journal or Journal()
        self._stack = contextlib.AsyncExitStack()
        self._draining = False
        self.place = Place(seat.loads, seat.number) if seat else None
        later = functools.partial(asyncio.get_running_loop().call_later, FOLD_EVERY_S)
        self._ledger = Ledger(clock, self._journal.write, later, self._account)
        process = secrets.token_hex(6)  # this one's name among all
        self._backing = backing(settings, process, self._ledger.store_seconds[()].add)
        self._meter = Meter(self._backing.usage)
        self._records = Records(settings.usage.records) if settings.usage.records else None
        self._auth = parts.authenticator(
            settings, self._backing.registry, salt_secret or parts.salt_secret(settings)
        )
        self._keyring = Keyring(settings.tenants, settings.keys, self._backing.registry)
        self._catalogue = parts.catalogue(settings)
        others = Others(process, clock, seat.count if seat else 1) if self._backing.among else None
        self.fleet = parts.fleet(settings, clock, others)
        self._roster = Roster(self.fleet, self._backing.switch)
        self._intake = parts.intake(settings, self._catalogue)
        self.crew = parts.crew(settings, self.fleet, self._catalogue, self._intake, Outbox().write)
        self.under_way = UnderWay(clock, settings.server.client_stall_s)
        self._dispatcher = self._make_dispatcher(clock)
        self.admission = parts.admission(settings, self._dispatcher, self.fleet, self._ledger.queued, clock)
        self.fleet.on_room = self.admission.wake
        self._peers = self._join(others, clock)
        self.public = self._public_app(self._corridor(clock), clock)
        self._board, self.admin = self._counting(seat)
        self.crew.take(FILE, parts.workers(settings))

    def _join(self, others: Others | None, clock: Callable[[], float]) -> AbstractAsyncContextManager[object]:
        """What keeps this process and the others told of each other."""
        if others is None or self._backing.among is None:
            return contextlib.nullcontext()
        peers = self._backing.among(parts.sharing(self.fleet, self.admission, others, clock))
        self.fleet.on_work = peers.notice
        return peers

    def _make_dispatcher(self, clock: Callable[[], float]) -> Dispatcher:
        rules = self._settings.routing
        return Dispatcher(self.fleet, POLICIES[rules.policy], self.crew.clients, self._ledger, clock, rules)

    def _corridor(self, clock: Callable[[], float]) -> Corridor:
        return Corridor(
            auth=self._auth,
            intake=self._intake,
            limits=RateLimiter(self._backing.limits),
            admission=self.admission,
            dispatcher=self._dispatcher,
            relay=Relay(clock),
            ledger=self._ledger,
        )

    def _public_app(self, corridor: Corridor, clock: Callable[[], float]) -> ASGIApp:
        server = self._settings.server
        completions = [
            Completions(endpoint, corridor, self._ledger, server, clock, self.under_way)
            for endpoint in Endpoint
        ]
        models = Models(corridor.auth, self._catalogue, corridor.limits)
        app = public_app(completions, models, self.fleet, lambda: self._draining)
        return parts.with_cors(app, server.cors_origins) if server.cors_origins else app

    def _counting(self, seat: Seat | None) -> tuple[Board | None, ASGIApp]:
        """What this process shares with its siblings to count by, and the admin port's application."""
        source = Source(
            self._ledger,
            buckets=len(self._settings.routing.bucket_edges) + 1,
            depth=self.admission.depth,
            workers=lambda: [(member.snapshot(), member.up) for member in self.fleet.members.values()],
            store_degraded=self._backing.is_degraded,
        )
        board = Board(source, seat.folder, seat.number, seat.count) if seat else None
        return board, self._admin_app(Metrics(source, board))

    def _admin_app(self, metrics: Metrics) -> ASGIApp:
        return admin_app(
            metrics.text,
            AdminKey(self._settings.admin.key_sha256),
            [
                Keys(self._keyring, time.time),
                Tenants(self._keyring),
                Metering(self._meter, time.time),
                Workers(self.fleet, self._roster),
            ],
        )

    def _account(self, trip: Trip) -> None:
        """To the tenant's account."""
        self._meter.record(trip)
        if self._records:
            self._records.write(trip)

    async def __aenter__(self) -> "Gateway":
        async with contextlib.AsyncExitStack() as stack:
            for opened in self._backing.opened:
                await stack.enter_async_context(opened)
            await stack.enter_async_context(self._peers)
            if self._records:
                stack.callback(self._records.close)
            await stack.enter_async_context(self._meter)
            stack.callback(self._ledger.fold)  # what has ended is counted before the meter closes
            stack.push_async_callback(self._auth.aclose)
            await stack.enter_async_context(self._roster)
            await stack.enter_async_context(self._backing.news(self._hear, self._look_for_news))
            if self._board:
                await stack.enter_async_context(self._board)
            await stack.enter_async_context(self.crew)
            if self._board:
                await self._know_the_workers()
            self._tasks = [
                asyncio.create_task(self.under_way.watch_for_stalls(), name="stalled callers"),
                asyncio.create_task(self.fleet.keep_learning(), name="fleet"),
            ]
            self._stack = stack.pop_all()
        return self

    async def _know_the_workers(self) -> None:
        """Until a process knows whom to ask, its siblings had better take what comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * self._settings.fleet.probe_timeout_s):
                await self.crew.seen()

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._stack.aclose()
        self.flush()

    def flush(self) -> None:
        """Count and write out what was put off."""
        self._ledger.fold()
        self._journal.flush()

    def adopt(self, settings: Settings) -> None:
        """The configuration file says something else now, of what is live."""
        self._keyring.replace(settings)
        self._auth.replace(FileDirectory(settings.tenants, settings.keys))
        self._catalogue.replace(parts.models(settings))
        self._dispatcher.replace(POLICIES[settings.routing.policy], settings.routing)
        self.fleet.max_long_prefills = settings.routing.max_long_prefills
        self.admission.replace(settings.admission)
        self.crew.take(FILE, parts.workers(settings))

    def _hear(self, news: str) -> None:
        """Another process, a replica or a command has changed something."""
        if news == "workers":
            self._roster.notice()
        else:
            self._auth.forget(news)

    def _look_for_news(self) -> None:
        self._roster.notice()
        self._auth.forget("all")

    def on(self, public: socket.socket, admin: socket.socket) -> list[tuple[ASGIApp, socket.socket]]:
        """Which application is served on which socket."""
        return [(self.public, public), (self.admin, admin)]

    async def drain(self, hurry: asyncio.Event) -> None:
        """Take nothing new, let what is under way end for drain_s or until `hurry`, then send it away."""
        self._draining = True
        if self.place:
            self.place.leave()
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


def run(settings: Settings, path: Path, load: Callable[[], Settings]) -> int:
    """Serve by as many processes as configured until a signal; returns the exit status.

    path, load: the configuration file, and how it is read again when it has changed. Raises PortTaken or
    RecordsUnwritable.
    """
    server = settings.server
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(listen("port", server.host, server.port))
        admin = stack.enter_context(listen("admin_port", server.admin_host, server.admin_port))
        if server.processes == 1:
            uvloop.run(serve(settings, public, admin, path, load))
            return 0
        if settings.usage.records:
            Records(settings.usage.records).close()  # what no process could open is told before there are any
        salt_secret = parts.salt_secret(settings)  # one for all processes, and for their successors

        def work(seat: Seat) -> None:
            uvloop.run(serve(settings, public, admin, path, load, seat, salt_secret))

        return Parent(server.processes, work, server.drain_s).run()


async def serve(
    settings: Settings,
    public: socket.socket,
    admin: socket.socket,
    path: Path,
    load: Callable[[], Settings],
    seat: Seat | None = None,
    salt_secret: bytes = b"",
) -> None:
    """Serve on these sockets, in this process, until a signal."""
    gateway = Gateway(settings, seat=seat, salt_secret=salt_secret)
    async with (
        gateway,
        running(gateway.on(public, admin), settings.server, gateway.place),
        Watcher(path, settings, load, gateway.adopt) as watcher,
    ):
        _tune_garbage_collection()
        log.info("serving on %s, metrics on %s", _shown(public), _shown(admin))
        await until_told_to_stop(
            gateway.drain, on_hangup=watcher.look_now, lifeline=seat.lifeline if seat else None
        )


def _tune_garbage_collection() -> None:
    """What is there by now stays, and a request makes no cycles: look less often, and not at that."""
    gc.freeze()  # with what little garbage there is: to find it would hold up who waits for the start
    gc.set_threshold(100_000, 20, 20)


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
