"""Does the record of a request tell what its answer was? The real SDK against a scripted server."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.burst.client import fire, open_client
from benchmarks.burst.records import Plan, Record
from tests.fakes import FakeWorker, Received, Reply, Script
from tests.vllm_answers import PROMPT_TOKENS, answer_of, response_head

PLAN = Plan(
    base_url="",
    model="smollm2",
    endpoint="chat",
    stream=True,
    requests=1,
    concurrency=100,
    max_tokens=5,
    prompt_tokens=3,
    prompt_file=None,
    seed=0,
    max_retries=0,
    timeout_s=30,
)


async def burst(worker: FakeWorker, count: int = 1, **plan: Any) -> list[Record]:
    ticks = itertools.count()
    chosen = replace(PLAN, base_url=f"{worker.url}/v1", requests=count, **plan)
    async with open_client(chosen, "sk-test") as client:
        return await fire(client, chosen, ["hello"] * count, lambda record: None, clock=lambda: next(ticks))


async def only(script: Script, **plan: Any) -> Record:
    async with FakeWorker(script) as worker:
        [record] = await burst(worker, **plan)
        return record


def kind(record: Record) -> str | None:
    return record.failure.kind if record.failure else None


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_tokens_are_those_of_usage(endpoint: str, stream: bool) -> None:
    record = await only(answer_of(3), endpoint=endpoint, stream=stream)

    assert record.failure is None
    assert (record.prompt_tokens, record.output_tokens) == (PROMPT_TOKENS, 3)


@pytest.mark.parametrize(
    ("endpoint", "path"), [("chat", "/v1/chat/completions"), ("completions", "/v1/completions")]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_asks_what_the_plan_says(endpoint: str, path: str, stream: bool) -> None:
    async with FakeWorker() as worker:
        await burst(worker, endpoint=endpoint, stream=stream)

    [request] = worker.requests
    asked = request.json()
    assert request.target == path
    assert request.headers["authorization"] == "Bearer sk-test"
    assert (asked["model"], asked["max_tokens"], asked.get("stream", False)) == ("smollm2", 5, stream)
    assert asked.get("prompt") == ("hello" if endpoint == "completions" else None)
    assert asked.get("messages") == ([{"role": "user", "content": "hello"}] if endpoint == "chat" else None)
    assert asked.get("stream_options") == ({"include_usage": True} if stream else None)


async def test_first_and_last_token_are_stamped_when_the_model_speaks_not_at_the_role_event() -> None:
    # The clock is read: burst 0, request 1, each of three tokens 2 to 4, end 5. The opening event and
    # the usage event do not count.
    record = await only(answer_of(3))

    assert (record.started_s, record.first_token_s, record.last_token_s, record.ended_s) == (1, 2, 4, 5)


async def test_the_last_event_counts_even_without_text() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "text": "a", "finish_reason": None}]})
        await reply.event({"choices": [{"index": 0, "text": "", "finish_reason": None}]})
        await reply.event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        await reply.done()

    record = await only(script, endpoint="completions")

    assert (record.first_token_s, record.last_token_s) == (2, 3)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f"}}]},
        {"reasoning": "hm"},
    ],
)
async def test_whatever_the_model_makes_is_output(delta: dict[str, Any]) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        await reply.event({"choices": [{"index": 0, "delta": delta}]})
        await reply.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        await reply.done()

    record = await only(script)

    assert (record.first_token_s, record.last_token_s) == (2, 3)


async def test_an_answer_that_was_not_streamed_has_no_token_times() -> None:
    record = await only(answer_of(3), stream=False)

    assert (record.first_token_s, record.last_token_s) == (None, None)


async def test_no_more_are_sent_at_once_than_the_plan_says() -> None:
    async with FakeWorker() as worker:
        records = await burst(worker, count=8, concurrency=3)

    assert [record.index for record in records] == list(range(8))
    assert all(record.failure is None for record in records)
    assert len(worker.connections) == 3  # kept alive; more at once would have needed more


async def test_a_refusal_is_recorded_with_status_code_and_request_id() -> None:
    async def script(request: Received, reply: Reply) -> None:
        error = {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
        await reply.json({"error": error}, status=429, headers={"x-request-id": "r-1"})

    record = await only(script)

    assert kind(record) == "429 rate_limit_exceeded"
    assert record.failure is not None
    assert "slow down" in record.failure.message
    assert record.request_id == "r-1"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "bad", "type": "BadRequestError", "code": 400}, "400 400"),
        ({"message": "bad", "type": "BadRequestError"}, "400 BadRequestError"),
        ({"message": "bad"}, "400 no_code"),
    ],
)
async def test_an_error_without_a_code_is_counted_by_its_type(error: dict[str, Any], expected: str) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"error": error}, status=400)

    assert kind(await only(script)) == expected


@pytest.mark.parametrize("stream", [True, False])
async def test_the_request_id_of_a_good_answer_is_kept(stream: bool) -> None:
    async def script(request: Received, reply: Reply) -> None:
        if stream:
            await reply.stream_head(headers={"x-request-id": "r-2"})
            await reply.done()
        else:
            await reply.json({"choices": []}, headers={"x-request-id": "r-2"})

    assert (await only(script, stream=stream)).request_id == "r-2"


async def test_an_error_event_in_a_stream_fails_the_request_under_the_status_it_came_with() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "delta": {"content": "a"}}]})
        await reply.event({"error": {"message": "it died", "type": "server_error", "code": "worker_failed"}})
        await reply.done()

    assert kind(await only(script)) == "200 worker_failed"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_without_finish_reason_is_cut_off(stream: bool) -> None:
    async def script(request: Received, reply: Reply) -> None:
        if not stream:
            await reply.json({"id": "x"})
            return
        await reply.stream_head()
        await reply.event({"id": "x"})
        await reply.event({"choices": [{"index": 0, "delta": {"content": "a"}}]})
        await reply.done()

    assert kind(await only(script, stream=stream)) == "200 cut_off"


async def test_a_connection_lost_in_a_stream_fails_the_request() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "delta": {"content": "a"}}]})
        reply.close()

    record = await only(script)

    assert kind(record) == "200 connection_error"
    assert record.first_token_s is not None


async def test_a_connection_lost_before_the_answer_has_no_status() -> None:
    async def script(request: Received, reply: Reply) -> None:
        reply.reset()

    assert kind(await only(script)) == "connection_error"


async def test_a_silent_server_is_given_up_after_the_timeout() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    assert kind(await only(script, timeout_s=0.05)) == "timeout"


async def test_the_timeout_is_that_of_the_plan_for_connecting_too() -> None:
    async with open_client(replace(PLAN, base_url="http://127.0.0.1:9/v1", timeout_s=7), "k") as client:
        assert client.timeout == 7


@pytest.mark.parametrize("stream", [True, False])
async def test_a_page_is_no_answer(stream: bool) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.send(response_head(200, {"content-type": "text/html", "content-length": "6"}) + b"<html>")

    record = await only(script, stream=stream)

    assert kind(record) == "200 unreadable"
    assert record.failure is not None
    assert "text/html" in record.failure.message


async def test_an_event_that_is_not_json_makes_the_answer_unreadable() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(b"{")
        await reply.done()

    assert kind(await only(script)) == "200 unreadable"


async def test_retries_of_the_sdk_are_counted_whether_they_helped_or_not() -> None:
    async def busy(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"code": "busy"}}, status=503, headers={"retry-after-ms": "1"})

    async with FakeWorker([busy, answer_of(1)]) as worker:
        [helped] = await burst(worker, max_retries=2)
    async with FakeWorker(busy) as worker:
        [failed] = await burst(worker, max_retries=2)

    assert (helped.failure, helped.retries) == (None, 1)
    assert (kind(failed), failed.retries) == ("503 busy", 2)


async def test_nothing_is_retried_unless_asked_for() -> None:
    async def busy(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"code": "busy"}}, status=503)

    async with FakeWorker(busy) as worker:
        await burst(worker)

    assert len(worker.requests) == 1


async def test_each_request_is_reported_as_it_ends() -> None:
    done: list[int] = []
    async with FakeWorker() as worker:
        plan = replace(PLAN, base_url=f"{worker.url}/v1")
        async with open_client(plan, "k") as client:
            await fire(client, plan, ["a", "b"], lambda record: done.append(record.index))

    assert sorted(done) == [0, 1]
