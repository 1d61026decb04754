"""Do several processes with the same workers keep to what those can take, and to fairness, together?"""

from typing import Any

import pytest

from gateway import settings
from gateway.accounting import Ledger
from gateway.admission import Admission
from gateway.dispatch import Dispatcher
from gateway.fleet import Fleet, Member, Slot
from gateway.model import Tenant
from gateway.peers import Others
from gateway.routing import POLICIES
from gateway.sharing import Sharing
from tests.gateway.test_model import Clock, job, trip

MODEL = "small"


class Process:
    """One of several; w0 and w1 are theirs together."""

    def __init__(self, name: str, clock: Clock, limit: int, siblings: int, policy: str) -> None:
        self.name = name
        self.others = Others(name, clock, siblings)
        members = [Member(id, MODEL, limit, up=True, is_adaptive=False) for id in ("w0", "w1")]
        self.fleet = Fleet(settings.Fleet(), members, clock, 1, self.others)
        ledger = Ledger(clock, lambda line: None)
        rules = settings.Routing()
        dispatcher = Dispatcher(self.fleet, POLICIES[policy], {}, ledger, clock, rules)
        self.admission: Admission[Slot] = Admission(
            settings.Admission(), dispatcher.place, clock, capacity=self.fleet.capacity
        )
        self.fleet.on_room = self.admission.wake
        self.place = dispatcher.place
        self.sharing = Sharing(self.fleet, self.admission, self.others, clock)
        self.admission.on_settled = self.sharing.settled


class Town:
    """Processes that hear of each other when told to."""

    def __init__(self, count: int = 2, limit: int = 4, policy: str = "least_requests") -> None:
        self.clock = Clock()
        self.all = [Process(f"p{n}", self.clock, limit, count, policy) for n in range(count)]

    def tell(self) -> None:
        reports = {of.name: of.sharing.report() for of in self.all}
        for of in self.all:
            heard = {name: report for name, report in reports.items() if name != of.name}
            of.sharing.learn(heard, self.clock())

    def in_flight(self, worker: str) -> int:
        return sum(of.fleet.members[worker].in_flight for of in self.all)


def fill(process: Process, **fields: Any) -> list[Slot]:
    """As many places as there are for such a request."""
    slots = []
    while (slot := process.place(job(**fields), 0.0)) is not None:
        slot.prompt_done()
        slots.append(slot)
    return slots


def test_before_anything_is_heard_each_takes_an_equal_share() -> None:
    town = Town(count=2, limit=4)
    assert [len(fill(of)) for of in town.all] == [4, 4]
    assert (town.in_flight("w0"), town.in_flight("w1")) == (4, 4)


def test_what_one_has_at_a_worker_the_other_does_not_send_there() -> None:
    town = Town(count=2, limit=4)
    town.tell()
    first, second = town.all
    assert len(fill(first)) == 8, "nobody else wants them"
    town.tell()
    assert fill(second) == []
    assert second.fleet.capacity(MODEL) == 0


async def test_a_place_that_comes_free_elsewhere_goes_to_who_waits_here() -> None:
    town = Town(count=2, limit=1)
    town.tell()
    first, second = town.all
    slots = fill(first)
    town.tell()
    entry = second.admission._entry
    ticket = entry.admit(job(), 60.0)
    second.admission.wake(MODEL)
    assert not ticket.payload.turn.done()
    slots[0].close()
    town.tell()
    assert ticket.payload.turn.done()
    place = ticket.payload.turn.result()
    assert place.member is second.fleet.members[slots[0].member.id]
    second.admission.leave(job(), trip(), ticket, 1.0)


def test_load_is_judged_by_what_all_have_there() -> None:
    town = Town(count=2, limit=99, policy="least_work")
    town.tell()
    first, second = town.all
    first.fleet.occupy("w0", job(prompt_tokens=5000))
    town.tell()
    placed = second.place(job(), 0.0)
    assert placed is not None
    assert placed.member.id == "w1"
    [there] = [of for of in second.fleet.workers(job()) if of.id == "w0"]
    assert (there.in_flight, there.prefilling) == (0, 1)
    assert there.prefill_tokens > 5000


def test_a_worker_reads_one_long_prompt_at_a_time_whoever_sent_it() -> None:
    town = Town(count=2, limit=99)
    town.tell()
    first, second = town.all
    long = job(is_long=True, prompt_tokens=20_000)
    reading = [first.place(long, 0.0), first.place(long, 0.0)]
    assert None not in reading
    town.tell()
    assert second.place(long, 0.0) is None
    assert not second.fleet.takes_long(MODEL)
    assert second.place(job(), 0.0) is not None, "short ones pass"
    assert reading[0] is not None
    reading[0].first_token()
    town.tell()
    assert second.place(long, 0.0) is not None


def test_with_nothing_heard_any_more_each_takes_an_equal_share_again() -> None:
    town = Town(count=2, limit=4)
    town.tell()
    first, second = town.all
    fill(first)
    town.tell()
    assert fill(second) == []
    second.sharing.lose()
    assert len(fill(second)) == 4


def report_of(process: Process) -> Any:
    return process.sharing._report()


async def test_who_waits_is_told_with_whether_a_place_would_help() -> None:
    town = Town(count=1, limit=1)
    [process] = town.all
    town.tell()
    slots = [process.fleet.occupy(id, job(is_long=True)) for id in ("w0", "w1")]
    entry = process.admission._entry
    tickets = [
        entry.admit(job(), 60.0),
        entry.admit(job(is_long=True), 60.0),
        entry.admit(job(is_long=True), 60.0),
    ]
    told = report_of(process).waiting[MODEL]
    assert (told.for_place, told.for_long_prefill) == (1, 2), "both workers read a long prompt"
    slots[0].first_token()
    told = report_of(process).waiting[MODEL]
    assert (told.for_place, told.for_long_prefill) == (3, 2)
    assert not process.sharing.is_idle()
    for slot in slots:
        slot.close()
    for ticket in tickets:
        process.admission._leave_behind(ticket)
    assert process.sharing.is_idle()


async def test_what_a_tenant_was_served_elsewhere_counts_here() -> None:
    """Both tenants' first requests wait at the second process; the first has served much of one of them."""
    town = Town(count=2, limit=4)
    first, second = town.all
    much, little = Tenant("much"), Tenant("little")
    town.tell()
    fill(second)
    waiting = [second.admission._entry.admit(job(tenant=tenant), 60.0) for tenant in (much, little)]
    first.sharing.settled(job(tenant=much), 10_200.0)
    town.tell()
    first.sharing.settled(job(tenant=much), 10_200.0)  # of one heard for the first time, its past is nothing
    town.tell()
    following = second.admission._queue.peek(MODEL)
    assert following is waiting[1]
    for of in waiting:
        second.admission._leave_behind(of)


def test_prompts_that_others_have_at_a_worker_make_its_gaps_long_too() -> None:
    town = Town(count=2)
    first, second = town.all
    town.tell()
    member = second.fleet.members["w0"]
    assert member.load.only_decoded_since(town.clock() - 1)
    first.fleet.occupy("w0", job())
    town.tell()
    assert not member.load.only_decoded_since(town.clock() - 1)


@pytest.mark.parametrize("count", [1, 3])
def test_the_limit_is_for_all_together(count: int) -> None:
    town = Town(count=count, limit=7)
    town.tell()
    for of in town.all:
        fill(of)
        town.tell()
    assert town.in_flight("w0") == town.in_flight("w1") == 7
