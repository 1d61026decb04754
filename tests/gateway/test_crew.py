"""Do workers come and go with what is said of them, and does what is under way end first?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gateway import settings
from gateway.crew import Crew, Hand
from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes
from gateway.fleet.catalogue import Card
from gateway.model import Model, WorkerSpec
from gateway.upstream import Timeouts, WorkerClient
from tests.fakes import MODEL, FakeWorker
from tests.gateway.test_model import job

TIMEOUTS = Timeouts(connect_s=5, first_byte_s=60, gap_s=60)


class House:
    """A fleet, and who is to be in it."""

    def __init__(self) -> None:
        rules = settings.Fleet(probe_interval_s=0.001, probe_timeout_s=5)
        self.catalogue = Catalogue({Model(MODEL): []})
        self.fleet = Fleet(rules, ())
        self.counts: list[int] = []
        self.clients: list[WorkerClient] = []
        probes = Probes(rules, self.fleet, self.catalogue)
        self.crew = Crew(self.fleet, probes, self.catalogue, self._hire, self.counts.append)

    def _hire(self, spec: WorkerSpec) -> Hand:
        client = WorkerClient(spec.url, timeouts=TIMEOUTS, idle_s=60, max_age_s=60)
        self.clients.append(client)
        member = Member(spec.id, spec.model, spec.max_concurrency, is_adaptive=False)
        return Hand(spec, member, client, Origin(spec.url, {}))

    @property
    def here(self) -> dict[str, int]:
        """Who is there, and how many requests each takes."""
        return {member.id: member.limit for member in self.fleet.members.values()}

    async def until(self, is_met: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_met():  # noqa: ASYNC110 - probes tell nobody when they are done
                await asyncio.sleep(0.001)


@pytest.fixture
def house() -> House:
    return House()


def spec(id: str, url: str = "http://127.0.0.1:9", most: int = 4) -> WorkerSpec:
    return WorkerSpec(id, url, MODEL, most)


async def test_the_fleet_is_who_the_sources_name(house: House) -> None:
    house.crew.take("file", [spec("w0"), spec("w1")])
    house.crew.take("admin", [spec("w2")])
    assert house.here == {"w0": 4, "w1": 4, "w2": 4}
    house.crew.take("file", [spec("w1")])
    assert house.here == {"w1": 4, "w2": 4}
    house.crew.take("admin", [])
    assert (house.here, house.counts) == ({"w1": 4}, [2, 3, 2, 1])
    assert house.crew.told("file") == {"w1": spec("w1")}
    assert house.crew.told("nobody") == {}


async def test_of_two_of_one_name_that_of_the_first_source_works(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.crew.take("file", [spec("w0", most=1)])
    house.crew.take("admin", [spec("w0", most=2), spec("w1")])
    assert house.here == {"w0": 1, "w1": 4}
    assert "worker w0 of admin is left out: file has one of that id" in caplog.text
    house.crew.take("file", [])
    assert house.here == {"w0": 2, "w1": 4}


async def test_who_stays_keeps_what_is_known_of_it(house: House) -> None:
    house.crew.take("file", [spec("w0")])
    member = house.fleet.members["w0"]
    house.crew.take("file", [spec("w0", most=9), spec("w1")])
    assert house.fleet.members["w0"] is member
    assert house.here == {"w0": 9, "w1": 4}
    house.crew.take("file", [spec("w0", most=9), spec("w1")])
    assert house.fleet.members["w0"] is member


async def test_who_moves_is_another_and_both_work_until_what_is_under_way_has_ended(house: House) -> None:
    house.crew.take("file", [spec("w0")])
    before = house.fleet.members["w0"]
    slot = house.fleet.occupy("w0", job(model=MODEL))
    house.crew.take("file", [spec("w0", "http://127.0.0.1:10")])
    after = house.fleet.members["w0"]
    assert after is not before
    assert set(house.crew.clients) == {before, after}
    slot.close()
    house.fleet.tick()
    assert set(house.crew.clients) == {after}


async def test_a_model_is_as_long_as_those_can_read_that_are_there(house: House) -> None:
    house.crew.take("file", [spec("w0"), spec("w1")])
    house.catalogue.report("w0", [Card(MODEL, max_model_len=8192)])
    house.catalogue.report("w1", [Card(MODEL, max_model_len=2048)])
    assert house.catalogue.card(MODEL)["max_model_len"] == 8192
    house.crew.take("file", [spec("w1")])
    assert house.catalogue.card(MODEL)["max_model_len"] == 2048


@asynccontextmanager
async def running(house: House) -> AsyncIterator[None]:
    async with house.crew:
        yield
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("probe")] == []


async def test_who_joins_is_checked_and_warms_up_beside_the_others(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with FakeWorker() as first, FakeWorker() as second:
        house.crew.take("file", [spec("w0", first.url, 100)])
        async with running(house):
            await house.crew.seen()
            assert (house.fleet.is_ready(), house.here) == (True, {"w0": 100})
            house.crew.take("file", [spec("w0", first.url, 100), spec("w1", second.url, 100)])
            await house.until(lambda: house.fleet.members["w1"].up)
            assert house.here["w1"] < 100
    assert "worker w1 joins" in caplog.text
    assert "worker w0 joins" not in caplog.text


async def test_who_leaves_is_checked_no_longer_and_its_connections_end(house: House) -> None:
    async with FakeWorker() as worker:
        house.crew.take("file", [spec("w0", worker.url)])
        async with running(house):
            await house.until(lambda: house.fleet.members["w0"].up)
            with await house.clients[0].post("/v1/completions", [], [b"{}"]) as answer:
                while await answer.read():
                    pass
            assert house.clients[0].idle == 1
            house.crew.take("file", [])
            await worker.closed_by_peer(1)
            assert house.clients[0].idle == 0


async def test_at_the_end_all_connections_end_those_of_who_is_leaving_too(house: House) -> None:
    async with FakeWorker() as worker:
        house.crew.take("file", [spec("w0", worker.url), spec("w1", worker.url + "/x")])
        async with running(house):
            for client in house.clients:
                with await client.post("/v1/completions", [], [b"{}"]) as answer:
                    while await answer.read():
                        pass
            house.crew.take("file", [spec("w1", worker.url + "/x")])
        await worker.closed_by_peer(2)
