"""Do long prompts and short ones keep out of each other's way, and is it always clear which is which?"""

import asyncio
from typing import Any

import httpx
import pytest

from tests.conftest import MODEL
from tests.e2e.callers import CHAT, COMPLETIONS
from tests.e2e.gates import TOKEN
from tests.e2e.observed import limited, observed
from tests.fakes import FakeWorker, Received, Reply, plain_answer

pytestmark = pytest.mark.usefixtures("either_lane")

MODELS = [{"name": MODEL, "max_model_len": 32768}]
WITHOUT_LIMITS = [{"id": "acme"}]


def asked(tokens: int, user: str = "", stream: bool = False) -> dict[str, Any]:
    return {"model": MODEL, "prompt": [1] * tokens, "max_tokens": 8, "user": user, "stream": stream}


@pytest.mark.case("Q3")
async def test_fifty_short_calls_are_served_while_twenty_long_ones_are_read_or_wait() -> None:
    read = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        if request.json()["user"] == "long":
            await read.wait()
            await reply.stream_head()
            await reply.event(TOKEN)
            await reply.done()
        else:
            await plain_answer(request, reply)

    async with (
        FakeWorker(script) as worker,
        observed(
            worker, models=MODELS, tenants=WITHOUT_LIMITS, workers=limited(worker, max_concurrency=32)
        ) as gateway,
        gateway.http() as client,
    ):
        long = [
            asyncio.create_task(client.post(COMPLETIONS, json=asked(9000, "long", stream=True)))
            for _ in range(20)
        ]
        await gateway.reaches(19, "gateway_queue_depth", bucket="2")
        short = await asyncio.gather(*(client.post(COMPLETIONS, json=asked(20, "short")) for _ in range(50)))
        assert [answer.status_code for answer in short] == [200] * 50
        assert not [call for call in long if call.done()]
        assert len(worker.requests) == 51
        read.set()
        assert [answer.status_code for answer in await asyncio.gather(*long)] == [200] * 20


@pytest.mark.case("Q3")
async def test_a_long_call_is_served_while_short_ones_keep_coming() -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, models=MODELS, tenants=WITHOUT_LIMITS, workers=limited(worker)) as gateway,
        gateway.http() as client,
    ):
        served = asyncio.Event()

        async def keep_asking() -> int:
            calls = 0
            while not served.is_set():
                assert (await client.post(COMPLETIONS, json=asked(20, "short"))).status_code == 200
                calls += 1
            return calls

        short = [asyncio.create_task(keep_asking()) for _ in range(8)]  # seven wait at any time
        await worker.received(20)
        long = await client.post(COMPLETIONS, json=asked(9000, "long"))
        served.set()
        assert long.status_code == 200
        assert min(await asyncio.gather(*short)) > 0


@pytest.mark.case("Q3")
async def test_at_the_edge_of_a_bucket_a_prompt_always_comes_into_the_same() -> None:
    edges = [(1023, "0"), (1024, "1"), (1025, "1"), (8191, "1"), (8192, "2"), (8193, "2")]
    async with (
        FakeWorker() as worker,
        observed(worker, models=MODELS, tenants=WITHOUT_LIMITS) as gateway,
        gateway.http() as client,
    ):
        for _ in range(3):
            found = [
                (tokens, (await client.post(COMPLETIONS, json=asked(tokens))).headers["x-gateway-bucket"])
                for tokens, _ in edges
            ]
            assert found == edges


@pytest.mark.case("Q3")
async def test_what_only_the_worker_finds_too_long_comes_back_in_its_words() -> None:
    text = {"error": {"message": "maximum context length is 2048 tokens", "code": 400, "param": "prompt"}}

    async def too_long(request: Received, reply: Reply) -> None:
        await reply.json(text, 400)

    async with FakeWorker(too_long) as worker, observed(worker) as gateway, gateway.http() as client:
        answers: list[httpx.Response] = [
            await client.post(COMPLETIONS, json=asked(20, stream=stream)) for stream in (False, True)
        ]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(400, text)] * 2


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL: dict[str, Any] = {"role": "tool", "content": None, "tool_call_id": "1"}


def said(content: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


FORMS: list[tuple[str, dict[str, Any], range]] = [
    (COMPLETIONS, {"prompt": [1] * 5000}, range(5000, 5001)),
    (COMPLETIONS, {"prompt": [[1] * 2500, [2] * 2500]}, range(5000, 5001)),
    (COMPLETIONS, {"prompt": "five words are not much"}, range(1, 50)),
    (COMPLETIONS, {"prompt": ["one", "two"]}, range(1, 50)),
    (COMPLETIONS, {"prompt": ""}, range(50)),
    (CHAT, said("five words are not much"), range(1, 50)),
    (CHAT, said([{"type": "text", "text": "five words are not much"}]), range(1, 50)),
    (CHAT, said([{"type": "text", "text": "five words about this image"}, IMAGE]), range(1, 1024)),
    (CHAT, said([IMAGE]), range(1, 1024)),
    (CHAT, said(None), range(50)),
    (CHAT, said([]), range(50)),
    (CHAT, {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, TOOL]}, range(1, 100)),
]


@pytest.mark.case("B2")
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_prompt_of_any_form_is_measured_by_what_it_says(stream: bool) -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, models=MODELS, tenants=WITHOUT_LIMITS) as gateway,
    ):
        async with gateway.http() as client:
            for path, form, _ in FORMS:
                body = {"model": MODEL, "max_tokens": 8, "stream": stream, **form}
                assert (await client.post(path, json=body)).status_code == 200
        lines = await gateway.idle_lines()
        for line, request, (_, form, expected) in zip(lines, worker.requests, FORMS, strict=True):
            assert line["estimated_prompt_tokens"] in expected
            sent = request.json()
            assert {name: sent[name] for name in form} == form
