"""Who works here? Brings the fleet to what the configuration and other sources say, while it serves."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes
from gateway.model import WorkerSpec
from gateway.upstream import WorkerClient

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker, and the ways to it."""

    spec: WorkerSpec
    member: Member
    client: WorkerClient
    origin: Origin


class Crew:
    """Workers come and go; what is under way at one that goes ends first. `clients` holds the ways to all.

    hire: makes what a worker needs. on_change: is told how many there are. As an async context manager, it
    has them checked, and ends all connections.
    """

    def __init__(
        self,
        fleet: Fleet,
        probes: Probes,
        catalogue: Catalogue,
        hire: Callable[[WorkerSpec], Hand],
        on_change: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.clients: dict[Member, WorkerClient] = {}
        self._fleet = fleet
        self._probes = probes
        self._catalogue = catalogue
        self._hire = hire
        self._on_change = on_change
        self._told: dict[str, Mapping[str, WorkerSpec]] = {}  # by source; what comes first, goes before
        self._hands: dict[str, Hand] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._has_begun = False
        fleet.on_left = self._part

    def take(self, source: str, specs: Iterable[WorkerSpec]) -> None:
        """From now on, this is what a source says."""
        self._told[source] = {spec.id: spec for spec in specs}
        wanted = dict(self._wanted())
        for id, hand in list(self._hands.items()):
            if id not in wanted or not _is_same(wanted[id], hand.spec):
                self._let_go(hand)
        for spec in wanted.values():
            if spec.id not in self._hands:
                self._take_on(spec)
            elif spec != (hand := self._hands[spec.id]).spec:
                self._hands[spec.id] = replace(hand, spec=spec)
                hand.member.set_most(spec.max_concurrency)
        self._on_change(len(self._hands))

    def told(self, source: str) -> Mapping[str, WorkerSpec]:
        """What a source said last, by id."""
        return self._told.get(source, {})

    async def seen(self) -> None:
        """Wait until each worker has been looked at once."""
        await self._probes.first_round()

    async def __aenter__(self) -> "Crew":
        self._has_begun = True
        await self._probes.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._probes.__aexit__()
        for client in list(self.clients.values()):
            await client.aclose()
        if self._ending:
            await asyncio.wait(self._ending)

    def _wanted(self) -> Iterator[tuple[str, WorkerSpec]]:
        seen: dict[str, str] = {}
        for source, specs in self._told.items():
            for id, spec in specs.items():
                if id in seen:
                    log.warning("worker %s of %s is left out: %s has one of that id", id, source, seen[id])
                else:
                    seen[id] = source
                    yield id, spec

    def _take_on(self, spec: WorkerSpec) -> None:
        hand = self._hire(spec)
        hand.member.was_up = self._has_begun  # who comes to others that work warms up beside them
        self._hands[spec.id] = hand
        self.clients[hand.member] = hand.client
        self._fleet.add(hand.member)
        self._probes.watch(hand.member, hand.origin)
        if self._has_begun:
            log.info("worker %s joins", spec.id)

    def _let_go(self, hand: Hand) -> None:
        del self._hands[hand.spec.id]
        self._fleet.retire(hand.member)

    def _part(self, member: Member) -> None:
        """Nothing is under way at it any more."""
        self._probes.unwatch(member)
        if member.id not in self._hands:
            self._catalogue.forget(member.id)
        ending = asyncio.get_running_loop().create_task(self.clients.pop(member).aclose())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _is_same(spec: WorkerSpec, before: WorkerSpec) -> bool:
    """Whether a worker may go on as it is, but for how many requests it is given."""
    return replace(spec, max_concurrency=0) == replace(before, max_concurrency=0)
