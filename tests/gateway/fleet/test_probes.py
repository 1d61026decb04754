"""Do probes learn from real sockets who is well, and what it serves?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import settings
from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes
from gateway.fleet.probes import LOOK_EVERY
from gateway.model import Model
from tests.fakes import MODEL, FakeWorker, Received, Reply, answer_probe, response_head

OFTEN: dict[str, Any] = {"probe_interval_s": 0.001, "probe_timeout_s": 5, "failures": 2, "ejection_s": 0.001}


class Watched:
    """A fleet of one worker, and a way to wait for what its probes find."""

    def __init__(self, **rules: Any) -> None:
        self.rules = settings.Fleet(**(OFTEN | rules))
        self.catalogue = Catalogue({Model(MODEL): []})
        self.member = Member("w0", MODEL, 4)
        self.fleet = Fleet(self.rules, [self.member])

    @asynccontextmanager
    async def by(self, url: str, headers: dict[str, str] | None = None) -> AsyncIterator["Watched"]:
        origins = {"w0": Origin(url, headers or {})}
        async with Probes(self.rules, self.fleet, self.catalogue, origins):
            yield self

    async def until(self, is_met: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_met():  # noqa: ASYNC110 - probes tell nobody when they are done
                await asyncio.sleep(0.001)

    async def until_up(self, up: bool = True) -> None:
        await self.until(lambda: self.member.up is up)


class Health:
    """A worker whose health and models a test changes."""

    def __init__(self) -> None:
        self.status = 200
        self.models: Any = None  # as vLLM would, unless told otherwise
        self.asked: list[str] = []

    async def __call__(self, request: Received, reply: Reply) -> None:
        self.asked.append(request.target)
        if request.target == "/health":
            await reply.json({}, status=self.status)
        elif self.models is None:
            await answer_probe(request, reply)
        else:
            await reply.json(self.models)


async def test_a_worker_that_answers_is_up_and_tells_what_it_serves() -> None:
    watched = Watched()
    async with FakeWorker() as worker, watched.by(worker.url):
        await watched.until(lambda: watched.catalogue.find(MODEL) != Model(MODEL))
        assert watched.member.up
    assert watched.catalogue.find(MODEL) == Model(MODEL, max_model_len=2048)


async def test_a_worker_that_says_it_is_ill_is_down_until_it_says_otherwise() -> None:
    health, watched = Health(), Watched()
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until_up()
        health.status = 503
        await watched.until_up(False)
        health.status = 200
        await watched.until_up()


async def test_a_worker_that_drains_is_checked_as_before() -> None:
    health, watched = Health(), Watched()
    watched.fleet.drain(["w0"])
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until_up()
        health.status = 503
        await watched.until_up(False)
        health.status = 200
        await watched.until_up()
    assert not watched.fleet.is_ready()


async def test_a_worker_that_is_gone_is_down(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    async with FakeWorker() as worker, watched.by(worker.url):
        await watched.until_up()
        await worker.stop()
        await watched.until_up(False)
    assert "worker w0 is down: health check: ConnectError" in caplog.text


async def test_a_worker_that_does_not_answer_in_time_is_ill(caplog: pytest.LogCaptureFixture) -> None:
    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    watched = Watched(probe_timeout_s=0.01, failures=1)
    watched.member.up = True
    async with FakeWorker(probe=silent) as worker, watched.by(worker.url):
        await watched.until_up(False)
    assert "ReadTimeout" in caplog.text


async def test_a_slow_worker_delays_no_other() -> None:
    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    rules = settings.Fleet(**(OFTEN | {"probe_timeout_s": 60}))
    members = [Member("slow", MODEL, 4), Member("quick", MODEL, 4)]
    fleet = Fleet(rules, members)
    async with FakeWorker(probe=silent) as slow, FakeWorker() as quick:
        origins = {"slow": Origin(slow.url, {}), "quick": Origin(quick.url, {})}
        async with Probes(rules, fleet, Catalogue({Model(MODEL): []}), origins), asyncio.timeout(10):
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
    assert [request.target for request in seen[:2]] == ["/prefix/health", "/prefix/v1/models"]
    assert {request.headers["authorization"] for request in seen} == {"Bearer w"}


async def test_no_proxy_of_the_environment_stands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    watched = Watched()
    async with FakeWorker() as worker, watched.by(worker.url):
        await watched.until_up()


async def test_adapters_are_learned_and_forgotten_with_the_workers_reports() -> None:
    health, watched = Health(), Watched()
    health.models = {"data": [{"id": MODEL}, {"id": "adapter", "parent": MODEL}]}
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: watched.member.models == {MODEL, "adapter"})
        health.models = {"data": [{"id": MODEL}]}
        await watched.until(lambda: watched.member.models == {MODEL})


async def test_models_are_asked_for_less_often_than_health() -> None:
    health, watched = Health(), Watched()
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: health.asked.count("/v1/models") == 2)
    first = health.asked.index("/v1/models")
    second = health.asked.index("/v1/models", first + 1)
    assert health.asked[first:second].count("/health") == LOOK_EVERY


async def test_a_worker_that_comes_back_is_asked_at_once_what_it_serves_now() -> None:
    health, watched = Health(), Watched(failures=1)
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: "/v1/models" in health.asked)
        health.status = 503
        await watched.until_up(False)
        health.asked.clear()
        health.status = 200
        await watched.until(lambda: "/v1/models" in health.asked)
    assert health.asked[:2] == ["/health", "/v1/models"]


async def test_a_worker_that_serves_another_model_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    health, watched = Health(), Watched()
    health.models = {"data": [{"id": "some-path"}, {"id": "other"}]}
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: "serves" in caplog.text)
    assert f"worker w0 serves some-path, other, not {MODEL}: give vllm serve" in caplog.text
    assert watched.member.models == {MODEL}


@pytest.mark.parametrize("answer", [{}, {"data": 7}, {"data": [{"created": 1}]}, []])
async def test_a_list_of_models_that_cannot_be_read_changes_nothing(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    health, watched = Health(), Watched()
    health.models = answer
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: "did not tell its models" in caplog.text)
        assert watched.member.up
    assert watched.member.models == {MODEL}


async def test_a_worker_that_dies_while_it_tells_its_models_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def probe(request: Received, reply: Reply) -> None:
        if request.target == "/health":
            await reply.json({})
        else:
            reply.reset()

    watched = Watched()
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url):
        await watched.until(lambda: "did not tell its models" in caplog.text)
    assert watched.member.models == {MODEL}


async def test_workers_tell_how_long_their_context_is() -> None:
    watched = Watched()
    async with FakeWorker() as worker, watched.by(worker.url):
        await watched.until(lambda: watched.fleet.contexts.of("w0", MODEL) == 2048)


async def test_what_waits_inside_a_worker_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def probe(request: Received, reply: Reply) -> None:
        if request.target == "/metrics":
            await reply.send(
                response_head(200, {"content-length": "31"}) + b"vllm:num_requests_waiting 30.0\n"
            )
        else:
            await answer_probe(request, reply)

    watched = Watched()
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url):
        await watched.until(lambda: "worker w0 keeps 30 requests waiting inside it" in caplog.text)


async def test_a_worker_without_metrics_is_up_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    async def probe(request: Received, reply: Reply) -> None:
        if request.target == "/metrics":
            reply.reset()
        else:
            await answer_probe(request, reply)

    caplog.set_level("DEBUG", "gateway.fleet.probes")
    watched = Watched()
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url):
        await watched.until(lambda: "worker w0 did not tell what waits in it" in caplog.text)
        assert watched.member.up


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
        origins = {"w0": Origin(worker.url, {}), "w1": Origin("http://127.0.0.1:9", {})}
        async with Probes(rules, fleet, Catalogue({Model(MODEL): []}), origins) as probes:
            await probes.first_round()
            assert {member.id: (member.up, member.failures) for member in fleet.members.values()} == {
                "w0": (True, 0),
                "w1": (False, 1),
            }
            assert health.asked == ["/health", "/v1/models"]
