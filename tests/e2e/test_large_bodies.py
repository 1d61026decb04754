"""Do bodies of many megabytes arrive whole, hold up nobody, and leave the memory; and what of larger ones?"""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import KEY, MODEL, configuration
from tests.e2e.callers import CHAT, COMPLETIONS, QUESTION, STREAMED, Caller, head_of
from tests.e2e.gates import TOKEN
from tests.e2e.observed import POLL_S, limited, observed
from tests.e2e.program import program
from tests.fakes import FakeWorker, Received, Reply, compact, framed

JSON = {"content-type": "application/json"}
LARGE_BYTES = 20_000_000
TOO_LARGE_BYTES = 60_000_000
PIECE = b" " * 1_000_000
MOST_COPIES = 1.2  # of each, that are left in memory
RESIDENT = "process_resident_memory_bytes"
GUARD_S = 60.0  # ten of them pass through three programs


def with_an_image(size: int) -> bytes:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
    content = [{"type": "text", "text": "What is this?"}, image]
    return compact({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": content}]})


class Streams:
    """Fifty streams, of which each goes on as it is taken, until all large bodies have come."""

    def __init__(self) -> None:
        self.all_came = asyncio.Event()
        self.digests: list[str] = []
        self.taken: dict[str, asyncio.Event] = {}

    async def __call__(self, request: Received, reply: Reply) -> None:
        if not request.json().get("stream"):
            appended = request.body.rindex(b',"cache_salt"')
            self.digests.append(hashlib.sha256(request.body[:appended]).hexdigest())
            request.body = b""  # this process is not to keep them
            await reply.json({})
            return
        taken = self.taken[request.json()["user"]] = asyncio.Event()
        await reply.stream_head()
        while not self.all_came.is_set():
            taken.clear()
            await reply.event(TOKEN)
            await taken.wait()
        await reply.done()

    async def follow(self, client: httpx.AsyncClient, user: str) -> int:
        """Take one to its end; returns how many tokens came."""
        tokens = 0
        async with client.stream("POST", COMPLETIONS, json={**STREAMED, "user": user}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    tokens += 1
                    self.taken[user].set()
        return tokens


@pytest.mark.case("B3")
async def test_ten_bodies_of_twenty_megabytes_arrive_whole_beside_fifty_streams(tmp_path: Path) -> None:
    body = with_an_image(LARGE_BYTES)
    streams = Streams()
    async with FakeWorker(streams) as worker:
        config = configuration(
            worker,
            workers=limited(worker, max_concurrency=64),
            models=[{"name": MODEL, "max_model_len": 32768}],
        )
        async with (
            program(config, tmp_path, GUARD_S) as gateway,
            httpx.AsyncClient(
                base_url=gateway.url,
                headers={"authorization": f"Bearer {KEY}"},
                timeout=GUARD_S,
                limits=httpx.Limits(max_connections=None),
                trust_env=False,
                verify=False,
            ) as client,
        ):

            async def send() -> httpx.Response:
                answer = await client.post(CHAT, content=body, headers=JSON)
                assert (await client.get("/health")).status_code == 200
                return answer

            await send()  # so that what is measured is not the first of its kind
            before = await gateway.metric(RESIDENT)
            small = [asyncio.create_task(streams.follow(client, str(number))) for number in range(50)]
            await gateway.reaches(50, "gateway_in_flight")
            large = await asyncio.gather(*(send() for _ in range(10)))
            assert [answer.status_code for answer in large] == [200] * 10
            assert {answer.headers["x-gateway-bucket"] for answer in large} == {"0"}
            streams.all_came.set()
            assert min(await asyncio.gather(*small)) > 1
            assert streams.digests == [hashlib.sha256(body[:-1]).hexdigest()] * 11
            # The allocator may keep what it was given for ten of them, for the next ten.
            while await gateway.metric(RESIDENT) > before + 10 * MOST_COPIES * LARGE_BYTES:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)


@pytest.mark.case("B3")
@pytest.mark.usefixtures("either_lane")
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_sixty_megabytes_are_refused_in_words_and_the_connection_ends_in_good_order(
    framing: str,
) -> None:
    headers = {
        "length": {"content-length": str(TOO_LARGE_BYTES)},
        "chunked": {"transfer-encoding": "chunked"},
    }
    piece = framed(PIECE) if framing == "chunked" else PIECE
    async with FakeWorker() as worker, observed(worker) as gateway:
        async with Caller(gateway.url) as caller:
            caller.say(head_of(CHAT, {**headers[framing], "connection": "close"}))
            for _ in range(TOO_LARGE_BYTES // len(PIECE)):
                caller.say(piece)
            if framing == "chunked":
                caller.say(b"0\r\n\r\n")
            status, told, content = await caller.answer()
            assert status == 413
            assert told["content-type"] == "application/json"
            assert json.loads(content)["error"]["code"] == "body_too_large"
            assert await caller.rest() == b""  # a FIN: a reset would raise
        async with gateway.http() as client:
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
        lines: list[dict[str, Any]] = await gateway.idle_lines()
        assert [line["outcome"] for line in lines] == ["body_too_large", "ok"]
