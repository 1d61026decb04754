"""What did a caller see of each call? Told by a simulated worker, and by scripted ones that misbehave."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from benchmarks.routing import caller
from benchmarks.routing.caller import Answer, NotServed, play, saturate
from benchmarks.routing.loads import Call, prompt
from benchmarks.simulator.asked import Model
from benchmarks.simulator.costs import Costs
from benchmarks.simulator.request import Limits
from benchmarks.simulator.server import Options, serving
from tests.fakes import FakeWorker, Received, Reply, Script
from tests.ports import free_ports
from tests.vllm_answers import answer_of, framed, sse_event

CALL = Call(at_s=0.0, tenant="a", size="short", prompt_tokens=20, output_tokens=3)
KEYS = {"a": "sk-a", "b": "sk-b"}
TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}
FAST = Options(
    Model("q", 4096, 50.0, 0), Limits(max_model_len=4096), Costs(0.0, 0.001, 0.0, 0.0, 0.0, 0.0, 0.0)
)
PATIENT_S = 60.0


@contextlib.asynccontextmanager
async def simulated() -> AsyncIterator[str]:
    """The URL of a worker."""
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(FAST, listener):
        yield "http://{}:{}".format(*listener.getsockname())


async def ask(url: str, *calls: Call, patience_s: float = PATIENT_S) -> list[Answer]:
    return await play(url, KEYS, "q", calls, patience_s, seed=1)


async def only(script: Script, patience_s: float = PATIENT_S) -> Answer:
    """What comes of one call; the worker sees the caller leave."""
    async with FakeWorker(script) as worker:
        [answer] = await ask(worker.url, CALL, patience_s=patience_s)
        return answer


def refusing(status: int) -> Script:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "no", "code": status}}, status=status)

    return script


async def silent(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def headed_then_silent(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.peer_closed()


async def one_token_then_silent(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event(TOKEN)
    await reply.peer_closed()


async def test_a_worker_answers_each_call_with_the_tokens_it_asked_for() -> None:
    calls = [replace(CALL, at_s=0.01 * number, output_tokens=number + 1) for number in range(20)]
    async with simulated() as url:
        answers = await ask(url, *calls)

    assert [answer.call for answer in answers] == calls
    assert {answer.outcome for answer in answers} == {"ok"}
    assert [answer.tokens for answer in answers] == [call.output_tokens for call in calls]
    for answer in answers:
        assert answer.call.at_s <= answer.call.at_s + (answer.ttft_s or -1) <= answer.ended_s


async def test_what_was_found_in_the_prefix_cache_is_told() -> None:
    calls = [
        Call(at_s, "a", "long", prompt_tokens, 1, (5, 6))
        for at_s, prompt_tokens in [(0, 1_100), (0.5, 1_300)]
    ]
    async with simulated() as url:
        answers = await ask(url, *calls)

    assert [answer.cached_tokens for answer in answers] == [0, 1_024]


async def test_a_call_asks_with_its_tenants_key_for_exactly_its_tokens_in_a_stream() -> None:
    async with FakeWorker(answer_of(3)) as worker:
        await ask(worker.url, CALL, replace(CALL, tenant="b"))

    first, second = sorted(worker.requests, key=lambda request: request.headers["authorization"])
    assert (first.target, first.headers["content-type"]) == ("/v1/completions", "application/json")
    assert first.headers["authorization"] == "Bearer sk-a"
    assert second.headers["authorization"] == "Bearer sk-b"
    assert first.headers["host"] == worker.url.removeprefix("http://")
    assert first.json() == {
        "model": "q",
        "prompt": prompt(CALL, 1).decode(),
        "max_tokens": 3,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(429, "shed"), (503, "shed"), (400, "failed"), (404, "failed"), (500, "failed"), (502, "failed")],
)
async def test_a_refusal_is_shed_where_it_is_for_load_and_failed_otherwise(status: int, outcome: str) -> None:
    answer = await only(refusing(status))

    assert (answer.outcome, answer.ttft_s, answer.tpot_s, answer.tokens) == (outcome, None, None, 0)


async def test_an_event_in_a_refusal_is_no_token() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head(status=503)
        await reply.event(TOKEN)
        await reply.done()

    answer = await only(script)

    assert (answer.outcome, answer.ttft_s, answer.tokens) == ("shed", None, 0)


async def test_a_target_that_is_not_there_is_a_failure() -> None:
    [answer] = await ask(f"http://127.0.0.1:{free_ports(1)[0]}", CALL)

    assert (answer.outcome, answer.ttft_s, answer.worker) == ("failed", None, "")
    assert answer.sent_s <= answer.ended_s


@pytest.mark.parametrize("bytes_sent", [b"", b"SSH-2.0-OpenSSH_9.9\r\n"])
async def test_no_answer_or_none_in_http_is_a_failure(bytes_sent: bytes) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.send(bytes_sent)
        if not bytes_sent:
            reply.close()

    answer = await only(script)

    assert (answer.outcome, answer.tokens) == ("failed", 0)


async def test_an_error_instead_of_the_first_token_is_a_failure() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"error": {"message": "no", "code": 400}})
        await reply.done()

    answer = await only(script)

    assert (answer.outcome, answer.ttft_s, answer.tokens) == ("failed", None, 0)


async def test_a_stream_that_breaks_off_is_cut_and_its_tokens_are_counted() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.event(TOKEN)
        reply.close()

    answer = await only(script)

    assert (answer.outcome, answer.tokens) == ("cut", 2)
    assert answer.ttft_s is not None


async def test_an_error_within_a_stream_cuts_it_and_is_no_token() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.chunk(b'data: {"choi\n\n' + sse_event({"error": {"message": "the worker broke"}}))
        await reply.done()

    answer = await only(script)

    assert answer.outcome == "cut"
    assert answer.tokens == 2  # one of them in part


@pytest.mark.parametrize("has_end", [True, False])
async def test_a_stream_without_the_word_that_it_is_done_is_cut(has_end: bool) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.send(b"0\r\n\r\n" if has_end else framed(sse_event(b"[DONE]")))
        if not has_end:
            reply.close()

    assert (await only(script)).outcome == "cut"


async def test_tokens_are_counted_wherever_the_network_cuts_their_events() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for byte in sse_event(TOKEN) * 5:
            await reply.chunk(bytes([byte]))
            await asyncio.sleep(0)
        reply.close()

    assert (await only(script)).tokens == 5


async def test_the_usage_tells_the_tokens_where_an_event_brings_several() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.event({"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens_details": None}})
        await reply.done()

    answer = await only(script)

    assert (answer.outcome, answer.tokens, answer.cached_tokens) == ("ok", 3, 0)


async def test_the_worker_is_known_where_the_target_names_it() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head(headers={"X-Gateway-Worker": "w3"})
        await reply.event(TOKEN)
        await reply.done()

    assert (await only(script)).worker == "w3"


@pytest.mark.parametrize("script", [silent, headed_then_silent])
async def test_who_has_no_token_in_time_hangs_up(script: Script) -> None:
    async with FakeWorker(script) as worker:
        [answer] = await ask(worker.url, CALL, patience_s=0.2)
        await worker.closed_by_peer(1)

    assert (answer.outcome, answer.ttft_s, answer.tokens) == ("gave_up", None, 0)
    assert answer.ended_s >= 0.19  # timers are that exact


async def test_who_has_a_token_in_time_stays() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await asyncio.sleep(1.7)
        await reply.done()

    assert (await only(script, patience_s=1.5)).outcome == "ok"


async def test_a_stream_that_goes_on_for_ever_is_cut_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "ANSWER_S", 0.1)
    async with FakeWorker(one_token_then_silent) as worker:
        [answer] = await ask(worker.url, CALL)
        await worker.closed_by_peer(1)

    assert (answer.outcome, answer.tokens) == ("cut", 1)


async def test_waiting_counts_from_the_planned_time_and_not_from_when_the_client_got_to_it() -> None:
    async with FakeWorker(answer_of(3)) as worker:
        [answer] = await ask(worker.url, replace(CALL, at_s=-5.0))

    assert answer.late_s >= 5.0
    assert answer.ttft_s is not None
    assert answer.ttft_s >= 5.0


async def test_patience_counts_from_the_planned_time() -> None:
    async with FakeWorker(answer_of(3)) as worker:
        [answer] = await ask(worker.url, replace(CALL, at_s=-5.0), patience_s=5.0)

    assert answer.outcome == "gave_up"


def test_the_time_per_token_is_that_of_the_tokens_after_the_first() -> None:
    answer = Answer(replace(CALL, at_s=10.0), "ok", "", 10.1, 1.0, 13.0, 5, 0)

    assert answer.tpot_s == pytest.approx(0.5)
    assert replace(answer, tokens=1).tpot_s == pytest.approx(2.0)
    assert answer.late_s == pytest.approx(0.1)


async def test_a_call_is_sent_whether_or_not_others_are_answered() -> None:
    async with FakeWorker() as worker:

        async def once_all_are_here(request: Received, reply: Reply) -> None:
            await worker.received(5)
            await answer_of(3)(request, reply)

        worker.scripts = [once_all_are_here]
        answers = await ask(worker.url, *(replace(CALL, at_s=0.02 * number) for number in range(5)))

    assert [answer.outcome for answer in answers] == ["ok"] * 5


async def test_no_call_is_sent_before_its_time() -> None:
    async with FakeWorker(answer_of(3)) as worker:
        answers = await ask(worker.url, CALL, replace(CALL, at_s=0.3))

    assert answers[1].sent_s >= 0.29  # timers are that exact


def for_ever() -> Iterator[Call]:
    return itertools.repeat(CALL)


async def test_a_closed_loop_keeps_as_many_calls_under_way_as_it_is_told() -> None:
    here: set[int] = set()
    most = 0

    async def script(request: Received, reply: Reply) -> None:
        nonlocal most
        here.add(request.connection)
        most = max(most, len(here))
        if len(worker.requests) <= 7:
            await worker.received(7)
        here.discard(request.connection)
        await answer_of(3)(request, reply)

    async with FakeWorker(script) as worker:
        rate = await saturate(worker.url, "sk-a", "q", for_ever(), in_flight=7, lasts_s=2.0)

    assert most == 7
    assert 0 < rate * 1.5 <= len(worker.requests)  # counted in the last three quarters
    assert len({request.body for request in worker.requests}) == len(worker.requests)


async def test_answers_of_the_first_quarter_of_a_closed_loop_do_not_count() -> None:
    served = itertools.count()

    async def script(request: Received, reply: Reply) -> None:
        if next(served) < 4:
            await answer_of(3)(request, reply)
        else:
            await reply.peer_closed()

    async with FakeWorker(script) as worker:
        rate = await saturate(worker.url, "sk-a", "q", for_ever(), in_flight=2, lasts_s=4.0)
        await worker.closed_by_peer(6)

    assert rate == 0.0


async def test_a_closed_loop_that_is_refused_measures_nothing() -> None:
    async with FakeWorker(refusing(429)) as worker:
        with pytest.raises(NotServed, match="a call ended as shed"):
            await saturate(worker.url, "sk-a", "q", for_ever(), in_flight=3, lasts_s=60.0)


async def test_a_closed_loop_that_runs_out_of_calls_measures_nothing() -> None:
    async with FakeWorker(answer_of(3)) as worker:
        with pytest.raises(NotServed, match="the calls ran out"):
            await saturate(worker.url, "sk-a", "q", iter([CALL] * 5), in_flight=3, lasts_s=60.0)


async def test_a_simulated_worker_can_be_saturated() -> None:
    async with simulated() as url:
        assert await saturate(url, "sk-a", "q", for_ever(), in_flight=8, lasts_s=1.0) > 0
