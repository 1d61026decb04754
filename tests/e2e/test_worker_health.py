"""Workers that fail, hang, come back, end or move: who notices, and who does not?"""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from tests.conftest import KEY, configuration
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED
from tests.e2e.gates import StreamGate
from tests.e2e.observed import STEADY_PROBES, Observed, limited, observed
from tests.e2e.program import program
from tests.fakes import FakeWorker, Received, Reply, Script, answer_probe, plain_answer

EITHER = pytest.mark.parametrize("body", [QUESTION, STREAMED], ids=["plain", "streamed"])
SOON = {"probe_interval_s": 0.05, "ejection_s": 0.05}
ENDING = "RuntimeError: cannot schedule new futures after shutdown"


def refuses(status: int, message: str = "") -> Script:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": message, "code": status}}, status=status)

    return script


def refuses_in_the_stream(status: int, message: str = "") -> Script:
    """As vLLM does with what it finds after it has answered 200."""

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(json.dumps({"error": {"message": message, "code": status}}).encode())
        await reply.done()

    return script


class Ill:
    """Fails until it is healed."""

    def __init__(self, while_ill: Script) -> None:
        self.while_ill = while_ill
        self.is_ill = True

    async def __call__(self, request: Received, reply: Reply) -> None:
        await (self.while_ill if self.is_ill else plain_answer)(request, reply)


async def breaks(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event({"choices": [{"index": 0, "text": "a"}]})
    reply.reset()


async def ask(gateway: Observed, count: int, body: object = QUESTION) -> list[str]:
    """One after the other; who answered each, or the code of the error."""
    told = []
    async with gateway.http() as client:
        for _ in range(count):
            answer = await client.post(COMPLETIONS, json=body)
            is_well = answer.status_code == 200 and b'"error"' not in answer.content
            told.append(answer.headers["x-gateway-worker"] if is_well else "failed")
    return told


# Ejection


@pytest.mark.parametrize("failure", [refuses(500), breaks], ids=["500 at once", "streams that break"])
async def test_a_worker_that_fails_fast_attracts_nobody_and_is_back_once_it_is_healed(
    failure: Script,
) -> None:
    ill = Ill(failure)
    async with FakeWorker(ill) as first, FakeWorker() as second, observed(first, second) as gateway:
        told = await ask(gateway, 100, STREAMED)
        assert told.count("failed") == 3
        assert told.count("w1") == 97
        assert await gateway.metric("gateway_worker_failures_total", worker="w0") == 3

    ill.is_ill = True
    async with (
        FakeWorker(ill) as first,
        FakeWorker() as second,
        observed(first, second, fleet=SOON) as gateway,
    ):
        await ask(gateway, 10, STREAMED)
        ill.is_ill = False
        while "w0" not in await ask(gateway, 1, STREAMED):  # by and by
            pass
        assert "failed" not in await ask(gateway, 20, STREAMED)


async def test_one_tenants_poison_ejects_no_more_than_half_of_the_workers() -> None:
    async def poisoned(request: Received, reply: Reply) -> None:
        await (refuses(500) if request.json().get("stop") == "poison" else plain_answer)(request, reply)

    async with (
        FakeWorker(poisoned) as w0,
        FakeWorker(poisoned) as w1,
        FakeWorker(poisoned) as w2,
        observed(w0, w1, w2) as gateway,
    ):
        await ask(gateway, 50, {**QUESTION, "stop": "poison"})
        assert "failed" not in await ask(gateway, 20)
        assert await gateway.metric("gateway_worker_up") == 3


async def test_a_lone_worker_is_tried_again_and_again() -> None:
    ill = Ill(refuses(500))
    async with FakeWorker(ill) as worker, observed(worker) as gateway:
        assert await ask(gateway, 20) == ["failed"] * 20
        ill.is_ill = False
        assert await ask(gateway, 3) == ["w0"] * 3


# A hung worker


async def test_a_hung_worker_costs_only_its_own_callers_and_is_back_once_it_goes_on() -> None:
    hangs, goes_on = asyncio.Event(), asyncio.Event()

    async def frozen(request: Received, reply: Reply) -> None:
        if hangs.is_set():
            await goes_on.wait()
        await (answer_probe if request.method == "GET" else plain_answer)(request, reply)

    fleet = {"probe_interval_s": 0.05, "probe_timeout_s": 0.05, "failures": 3}
    async with (
        FakeWorker(frozen, probe=frozen) as first,
        FakeWorker() as second,
        observed(first, second, fleet=fleet) as gateway,
        gateway.http() as client,
    ):
        hangs.set()
        stuck = [asyncio.create_task(client.post(COMPLETIONS, json=QUESTION)) for _ in range(8)]
        await first.received(1)
        assert (await client.get("/health")).status_code == 200
        await gateway.reaches(0, "gateway_worker_up", worker="w0")
        assert await ask(gateway, 50) == ["w1"] * 50
        goes_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*stuck)} == {200}
        await gateway.reaches(1, "gateway_worker_up", worker="w0")
        while "w0" not in await ask(gateway, 1):
            pass


async def test_a_worker_that_ends_and_leaves_its_streams_open_is_given_up() -> None:
    """As vLLM does at SIGTERM: it listens no longer, and nothing comes on what is open."""
    async with FakeWorker(StreamGate(holds_plain=True)) as worker, observed(worker) as gateway:
        async with gateway.http() as client, client.stream("POST", COMPLETIONS, json=STREAMED) as stream:
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            worker.stop_listening()
            rest = [line async for line in lines if line]
        assert '"worker_failed"' in rest[-1]
        [line] = await gateway.idle_lines()
        assert line["outcome"] == "worker_failed"
        assert "takes no connections any more" in line["detail"]


# Another worker instead


@EITHER
async def test_a_worker_that_ends_and_takes_nothing_new_is_passed_over_unseen(body: object) -> None:
    async with (
        FakeWorker(refuses(500, ENDING)) as first,
        FakeWorker() as second,
        observed(first, second, fleet=STEADY_PROBES) as gateway,
    ):
        assert await ask(gateway, 10, body) == ["w1"] * 10
        assert len(first.requests) == 3  # then it is ejected
        assert await gateway.metric("gateway_worker_failures_total", worker="w0", kind="declined") == 3
        assert await gateway.metric("gateway_retries_total") == 3
        lines = await gateway.idle_lines()
        assert {(line["outcome"], line["worker"]) for line in lines} == {("ok", "w1")}
        assert [line["tried"] for line in lines].count(["w0"]) == 3


@pytest.mark.parametrize("refusal", [refuses(503, "full"), refuses_in_the_stream(503, "full")])
async def test_a_worker_whose_queue_is_full_is_passed_over_unseen(refusal: Script) -> None:
    async with (
        FakeWorker(refusal) as first,
        FakeWorker() as second,
        observed(first, second, fleet=STEADY_PROBES) as gateway,
    ):
        assert await ask(gateway, 10, STREAMED) == ["w1"] * 10
        assert await gateway.metric("gateway_worker_failures_total", worker="w0", kind="busy") >= 1
        assert await gateway.metric("gateway_worker_up", worker="w0") == 1


@EITHER
async def test_where_all_are_busy_each_call_is_sent_once_and_told_when_to_come_back(body: object) -> None:
    async def busy(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "full", "code": 503}}, 503, {"retry-after": "7"})

    async with FakeWorker(busy) as first, FakeWorker(busy) as second, observed(first, second) as gateway:
        async with gateway.http() as client:
            answers = [await client.post(COMPLETIONS, json=body) for _ in range(10)]
        assert {answer.status_code for answer in answers} == {503}
        assert {answer.json()["error"]["code"] for answer in answers} == {"server_is_overloaded"}
        assert {answer.headers["retry-after"] for answer in answers} == {"7"}
        assert len(first.requests) + len(second.requests) == 11  # once it was not known of the other
        await gateway.ended(*["server_is_overloaded"] * 10, requests=0, tokens=0)


async def test_a_busy_worker_is_left_to_itself_while_another_has_room_and_used_when_none_has() -> None:
    gate = StreamGate(holds_plain=False)
    async with (
        FakeWorker([refuses(503), plain_answer]) as first,
        FakeWorker(gate) as second,
        observed(first, second, workers=limited(first, second), fleet=STEADY_PROBES) as gateway,
        gateway.http() as client,
    ):
        stream = asyncio.create_task(client.post(COMPLETIONS, json=STREAMED))  # by w0, refused; now at w1
        await second.received(1)
        assert await ask(gateway, 1) == ["w0"]
        gate.open.set()
        assert (await stream).headers["x-gateway-worker"] == "w1"


async def test_retries_stay_within_their_budget_while_a_worker_takes_nothing() -> None:
    lasting = {"probe_interval_s": 60, "failures": 1_000_000}
    async with (
        FakeWorker(refuses(500, ENDING)) as first,
        FakeWorker() as second,
        observed(first, second, fleet=lasting, routing={"policy": "round_robin"}) as gateway,
    ):
        told = await ask(gateway, 200)
        retries = await gateway.metric("gateway_retries_total")
        assert retries <= 200 * 0.1 + 4  # and a few that a quiet gateway has, too
        assert told.count("failed") == len(first.requests) - retries > 0
        assert len(first.requests) + len(second.requests) == 200 + retries


async def test_no_request_is_sent_again_once_a_token_has_come() -> None:
    async with FakeWorker(breaks) as first, FakeWorker(breaks) as second, observed(first, second) as gateway:
        await ask(gateway, 4, STREAMED)
        assert len(first.requests) + len(second.requests) == 4
        assert await gateway.metric("gateway_retries_total") == 0


# The file


async def test_workers_of_the_file_come_and_go_and_no_stream_is_dropped(tmp_path: Path) -> None:
    gate = StreamGate(holds_plain=False)
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        FakeWorker(gate) as first,
        FakeWorker() as second,
        program(configuration(first), tmp_path) as running,
        httpx.AsyncClient(base_url=running.url, headers=headers, trust_env=False) as client,
    ):
        async with client.stream("POST", COMPLETIONS, json=STREAMED) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            file = tmp_path / "gateway.toml"
            file.write_text(file.read_text().replace(first.url, second.url))
            await running.says(re.compile(rb"in force are its workers"))
            while (await client.post(COMPLETIONS, json=QUESTION)).status_code != 200:
                pass  # until the new one has been checked
            assert len(second.requests) == 1
            gate.open.set()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        await first.closed_by_peer(1)
