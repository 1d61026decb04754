"""Do checks learn from a real socket whether a worker is well, and what it serves?"""

from typing import Any

import pytest

from gateway.fleet.checks import LOOK_EVERY
from gateway.model import Model
from tests.fakes import MODEL, FakeWorker, Received, Reply, answer_probe, response_head
from tests.gateway.fleet.watched import Health, Watched


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
    assert "worker w0 is down: health check: no answer within 0.01 s" in caplog.text


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
    assert health.asked[:4] == ["/health", "/is_sleeping", "/is_paused", "/v1/models"]


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
        if request.target == "/v1/models":
            reply.reset()
        else:
            await answer_probe(request, reply)

    watched = Watched()
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url):
        await watched.until(lambda: "worker w0 did not answer /v1/models" in caplog.text)
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

    watched = Watched()
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url):
        await watched.until(lambda: "worker w0 did not answer /metrics" in caplog.text)
        assert watched.member.up


@pytest.mark.parametrize("path", ["/is_sleeping", "/is_paused"])
async def test_a_worker_that_sleeps_or_is_paused_gets_no_requests_although_it_says_that_it_is_well(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    health, watched = Health(), Watched()
    health.unavailable[path] = False
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until_up()
        health.unavailable[path] = True
        await watched.until_up(False)
        assert f"it answers {path} with true: resume it, or wake it up" in caplog.text
        health.unavailable[path] = False
        await watched.until_up()


async def test_a_worker_that_is_asleep_when_it_is_first_seen_is_never_up() -> None:
    health, watched = Health(), Watched()
    health.unavailable["/is_sleeping"] = True
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: watched.member.failures > 3)
        assert not watched.member.was_up


async def test_a_worker_that_cannot_be_put_to_sleep_is_asked_once_whether_it_is() -> None:
    health, watched = Health(), Watched()
    async with FakeWorker(probe=health) as worker, watched.by(worker.url):
        await watched.until(lambda: health.asked.count("/health") > LOOK_EVERY)
    assert (health.asked.count("/is_sleeping"), health.asked.count("/is_paused")) == (1, 1)


async def test_what_is_no_answer_to_whether_it_sleeps_counts_as_none() -> None:
    async def probe(request: Received, reply: Reply) -> None:
        if request.target == "/is_sleeping":
            await reply.json([True])
        else:
            await answer_probe(request, reply)

    watched = Watched()
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url):
        await watched.until_up()


async def test_a_worker_whose_tokens_come_is_alive_however_late_it_answers_checks() -> None:
    watched = Watched(probe_timeout_s=0.01, failures=1)
    watched.member.up = True
    late: list[int] = []

    async def silent(request: Received, reply: Reply) -> None:
        late.append(1)
        watched.member.answered += len(late) < 5
        await reply.peer_closed()

    async with FakeWorker(probe=silent) as worker, watched.by(worker.url):
        await watched.until(lambda: len(late) == 4)
        assert watched.member.up
        await watched.until_up(False)


async def test_metrics_and_models_that_are_slow_delay_no_health_check() -> None:
    async def probe(request: Received, reply: Reply) -> None:
        if asked.count("/v1/models") and request.target in ("/metrics", "/v1/models"):
            await reply.peer_closed()
        asked.append(request.target)
        await answer_probe(request, reply)

    asked: list[str] = []
    watched = Watched(probe_timeout_s=60)
    async with FakeWorker(probe=probe) as worker, watched.by(worker.url):
        await watched.until(lambda: asked.count("/health") > 3 * LOOK_EVERY)


async def test_it_is_told_when_a_worker_is_down_and_refuses_connections() -> None:
    watched = Watched(failures=1)
    async with FakeWorker() as worker, watched.by(worker.url):
        await watched.until_up()
        assert not watched.refused.is_set()
        await worker.stop()
        await watched.refused.wait()
        assert not watched.member.up
