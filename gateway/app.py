"""The composition root: Settings → a gateway."""

import asyncio
import contextlib
import functools
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from starlette.types import ASGIApp

from gateway import parts
from gateway.accepting import Place
from gateway.accounting import Ledger
from gateway.admin import AdminKey, Keys, Metering, Tenants, Workers, admin_app
from gateway.auth import FileDirectory
from gateway.backing import backing
from gateway.callers import Callers
from gateway.dispatch import Dispatcher
from gateway.ending import Ending
from gateway.endpoints import Completions, Models, public_app
from gateway.fleet import Roster
from gateway.forks import Seat
from gateway.journal import Journal
from gateway.keyring import Keyring
from gateway.limits import RateLimiter
from gateway.metrics import Board, Metrics, Source
from gateway.model import Endpoint, Trip
from gateway.outbox import Outbox
from gateway.peers import Others
from gateway.pipeline import Corridor
from gateway.relay import Relay
from gateway.routing import POLICIES
from gateway.settings import Settings
from gateway.underway import UnderWay
from gateway.usage import Meter, Records

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
        server = settings.server
        limits = server.client_stall_s, server.request_timeout_s
        self.under_way = UnderWay(clock, *limits, settings.relay.heartbeat_s)
        self._dispatcher = self._make_dispatcher(clock)
        self.admission = parts.admission(settings, self._dispatcher, self.fleet, self._ledger.queued, clock)
        self.fleet.on_room = self.admission.wake
        self.callers = Callers()
        self.ending = Ending(server, self.admission, self.under_way, self.callers, self.place)
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
        app = public_app(completions, models, self.fleet, lambda: self.ending.has_begun)
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
        board = Board(source, seat.folder, seat.number, seat.seats) if seat else None
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
                asyncio.create_task(self.under_way.watch(), name="requests under way"),
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
        """See `Ending`."""
        await self.ending.drain(hurry)
