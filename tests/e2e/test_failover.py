"""Is a request tried elsewhere exactly when no worker can have begun it?"""

import pytest

from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED
from tests.e2e.observed import STEADY_PROBES, limited, observed
from tests.fakes import FakeWorker, Received, Reply, plain_answer

pytestmark = pytest.mark.usefixtures("either_lane")

ROUND_ROBIN = {"policy": "round_robin"}


async def test_a_worker_out_of_reach_is_passed_over_without_a_trace_for_the_caller() -> None:
    async with (
        FakeWorker() as gone,
        FakeWorker() as other,
        observed(gone, other, fleet=STEADY_PROBES, routing=ROUND_ROBIN) as gateway,
    ):
        await gone.stop()
        async with gateway.http() as client:
            for body in (QUESTION, STREAMED):
                answer = await client.post(COMPLETIONS, json=body)
                assert (answer.status_code, answer.headers["x-gateway-worker"]) == (200, "w1")
        await gateway.ended("ok", "ok", requests=2, tokens=2 * COST)
        assert (len(gone.requests), len(other.requests)) == (0, 2)
        retries = await gateway.metric("gateway_retries_total")
        assert retries >= 1
        failures = await gateway.metric("gateway_worker_failures_total", worker="w0", kind="unreachable")
        assert failures == retries


async def test_two_workers_out_of_reach_are_passed_over_for_a_third() -> None:
    async with (
        FakeWorker() as first,
        FakeWorker() as second,
        FakeWorker() as third,
        observed(first, second, third, fleet=STEADY_PROBES) as gateway,
    ):
        await first.stop()
        await third.stop()  # of equals, requests begin at another one each turn
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=QUESTION)
            assert (answer.status_code, answer.headers["x-gateway-worker"]) == (200, "w1")
        await gateway.ended("ok", requests=1, tokens=COST)
        assert await gateway.metric("gateway_retries_total") == 2


async def test_no_worker_in_reach_becomes_502_and_costs_nothing() -> None:
    async with (
        FakeWorker() as first,
        FakeWorker() as second,
        observed(first, second, fleet=STEADY_PROBES) as gateway,
    ):
        await first.stop()
        await second.stop()
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")
        [line] = await gateway.ended("worker_failed", requests=0, tokens=0)
        assert f"127.0.0.1:{first.port}" in line["detail"] or f"127.0.0.1:{second.port}" in line["detail"]
        assert await gateway.metric("gateway_worker_failures_total", kind="unreachable") == 2


async def test_enough_failed_connections_take_a_worker_out_until_it_is_back() -> None:
    fleet = {"probe_interval_s": 60, "failures": 3, "ejection_s": 60}
    async with FakeWorker() as worker, observed(worker, fleet=fleet) as gateway, gateway.http() as client:
        await worker.stop()
        codes = [(await client.post(COMPLETIONS, json=QUESTION)).json()["error"]["code"] for _ in range(4)]
        assert codes[:2] == ["worker_failed"] * 2
        assert codes[3] == "no_worker"
        assert await gateway.metric("gateway_worker_up", worker="w0") == 0
        assert (await client.get("/ready")).status_code == 503


async def test_refusals_and_busy_answers_never_take_a_worker_out() -> None:
    async def refuse(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "too long", "code": 400}}, 400)

    async def busy(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "full", "code": 503}}, 503)

    async with (
        FakeWorker([*[refuse] * 20, *[busy] * 20, plain_answer]) as worker,
        observed(worker, fleet={"failures": 3}) as gateway,
        gateway.http() as client,
    ):
        statuses = [(await client.post(COMPLETIONS, json=QUESTION)).status_code for _ in range(41)]
        assert statuses == [400] * 20 + [503] * 20 + [200]
        assert len(worker.requests) == 41


@pytest.mark.case("C2")
async def test_a_kept_connection_that_the_worker_closed_meanwhile_is_replaced_unseen() -> None:
    async def close_unanswered(request: Received, reply: Reply) -> None:
        reply.close()

    async with (
        FakeWorker([plain_answer, close_unanswered, plain_answer]) as worker,
        observed(worker) as gateway,
    ):
        async with gateway.http() as client:
            for _ in range(2):
                assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
        await gateway.ended("ok", "ok", requests=2, tokens=2 * COST)
        first, second, third = worker.requests
        assert first.connection == second.connection != third.connection


@pytest.mark.case("C2")
async def test_a_worker_that_closes_each_connection_after_its_answer_serves_on() -> None:
    async def answer_and_close(request: Received, reply: Reply) -> None:
        await plain_answer(request, reply)
        reply.close()

    async with FakeWorker(answer_and_close) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            statuses = [(await client.post(COMPLETIONS, json=QUESTION)).status_code for _ in range(50)]
        assert statuses == [200] * 50
        await gateway.ended(*["ok"] * 50, requests=50, tokens=50 * COST)
        assert len(worker.requests) == 50  # each was executed once


@pytest.mark.case("C2")
async def test_a_fresh_connection_that_ends_without_an_answer_is_tried_only_once() -> None:
    async def close_unanswered(request: Received, reply: Reply) -> None:
        reply.close()

    async with (
        FakeWorker(close_unanswered) as worker,
        FakeWorker() as other,
        observed(worker, other, workers=limited(worker, other)) as gateway,
    ):
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")
        await gateway.ended("worker_failed", requests=0, tokens=0)
        assert (len(worker.requests), len(other.requests)) == (1, 0)
