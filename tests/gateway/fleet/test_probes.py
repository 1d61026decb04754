"""Is every worker watched by itself, for as long as it is there?"""

import asyncio

import pytest

from gateway import settings
from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes
from gateway.model import Model
from tests.fakes import MODEL, FakeWorker, Received, Reply
from tests.gateway.fleet.watched import OFTEN, Health, Watched


async def test_a_slow_worker_delays_no_other() -> None:
    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    rules = settings.Fleet(**(OFTEN | {"probe_timeout_s": 60}))
    members = [Member("slow", MODEL, 4), Member("quick", MODEL, 4)]
    fleet = Fleet(rules, members)
    async with FakeWorker(probe=silent) as slow, FakeWorker() as quick:
        probes = Probes(rules, fleet, Catalogue({Model(MODEL): []}))
        for member, worker in zip(members, (slow, quick), strict=True):
            probes.watch(member, Origin(worker.url, {}))
        async with probes, asyncio.timeout(10):
            while not members[1].up:  # noqa: ASYNC110 - probes tell nobody when they are done
                await asyncio.sleep(0.001)
    assert not members[0].up


async def test_probes_bring_the_workers_own_key_and_its_path() -> None:
    seen: list[Received] = []

    async def probe(request: Received, reply: Reply) -> None:
        seen.append(request)
        await reply.json({"data": []})

    watched = Watched()
    key = {"authorization": "Bearer w"}
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url + "/prefix", key):
        await watched.until(lambda: len(seen) > 1)
    assert [request.target for request in seen[:2]] == ["/prefix/health", "/prefix/is_sleeping"]
    assert {request.headers["authorization"] for request in seen} == {"Bearer w"}


async def test_no_proxy_of_the_environment_stands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    watched = Watched()
    async with FakeWorker() as worker, watched.by(worker.url):
        await watched.until_up()


async def test_leaving_ends_the_probes() -> None:
    watched = Watched()
    async with FakeWorker() as worker:
        async with watched.by(worker.url):
            await watched.until_up()
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("probe")] == []


async def test_checks_that_a_bug_has_ended_begin_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    find_healthy = watched.fleet.healthy

    def fail_once(member: Member) -> None:
        monkeypatch.setattr(watched.fleet, "healthy", find_healthy)
        raise IndexError("a bug")

    monkeypatch.setattr(watched.fleet, "healthy", fail_once)
    async with FakeWorker(probe=Health()) as worker, watched.by(worker.url):
        await watched.until_up()
    assert "the health checks of worker w0 failed; they begin anew" in caplog.text
    assert "IndexError: a bug" in caplog.text


async def test_the_first_round_is_over_when_each_worker_was_looked_at_whether_it_is_well_or_not() -> None:
    health = Health()
    rules = settings.Fleet(**OFTEN | {"probe_interval_s": 3600})
    fleet = Fleet(rules, [Member("w0", MODEL, 4), Member("w1", MODEL, 4)])
    async with FakeWorker(probe=health) as worker:
        probes = Probes(rules, fleet, Catalogue({Model(MODEL): []}))
        for member, url in zip(fleet.members.values(), (worker.url, "http://127.0.0.1:9"), strict=True):
            probes.watch(member, Origin(url, {}))
        async with probes:
            await probes.first_round()
            assert {member.id: (member.up, member.failures) for member in fleet.members.values()} == {
                "w0": (True, 0),
                "w1": (False, 1),
            }
            assert health.asked == ["/health", "/is_sleeping", "/is_paused", "/v1/models"]


async def test_a_worker_with_trouble_is_checked_at_once() -> None:
    health, watched = Health(), Watched(probe_interval_s=11, failures=3)
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until_up()
        watched.fleet.unreachable(watched.member, "refused")
        await watched.until(lambda: health.asked.count("/health") == 2)  # within a tenth of the interval


async def test_each_check_has_a_connection_of_its_own_so_that_a_name_is_followed() -> None:
    health, watched = Health(), Watched()
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: len(health.asked) > 5)
        assert len(worker.connections) >= 5


async def test_a_worker_that_is_watched_no_longer_is_left_alone() -> None:
    health, watched = Health(), Watched()
    probes = Probes(watched.rules, watched.fleet, watched.catalogue)
    async with FakeWorker(probe=health) as worker, probes:
        probes.hurry(watched.member)  # nobody watches it yet
        probes.watch(watched.member, Origin(worker.url, {}))
        await watched.until_up()
        probes.unwatch(watched.member)
        await probes.first_round()
        await watched.until(
            lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "probe w0"]
        )
        probes.hurry(watched.member)
