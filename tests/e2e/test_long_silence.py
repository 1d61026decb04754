"""May a worker be silent for longer than anything else may, while it reads a long prompt?"""

import asyncio

import httpx
import pytest

from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller, head_of
from tests.e2e.gates import TOKEN
from tests.e2e.observed import observed
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, plain_answer

pytestmark = pytest.mark.usefixtures("either_lane")

SHORT_S = 0.3  # every other limit


@pytest.mark.case("S6")
async def test_before_the_first_byte_no_limit_holds_but_its_own() -> None:
    read = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        user = request.json()["user"]
        if user == "begun":
            await reply.stream_head()
            await reply.event(TOKEN)
            await reply.peer_closed()
        elif user == "head only":
            await reply.stream_head()
            await read.wait()
            await reply.event(TOKEN)
            await reply.done()
        else:
            await read.wait()
            await plain_answer(request, reply)

    server = {"header_timeout_s": SHORT_S, "body_timeout_s": SHORT_S, "client_stall_s": SHORT_S}
    upstream = {"gap_timeout_s": SHORT_S, "idle_s": SHORT_S, "connect_timeout_s": SHORT_S}
    async with FakeWorker(script) as worker, observed(worker, server=server, upstream=upstream) as gateway:
        async with gateway.http() as client, Caller(gateway.url) as idle, Caller(gateway.url) as uploading:

            def ask(body: dict[str, object], user: str) -> asyncio.Task[httpx.Response]:
                return asyncio.create_task(client.post(COMPLETIONS, json={**body, "user": user}))

            silent = [ask(QUESTION, "plain"), ask(STREAMED, "no head"), ask(STREAMED, "head only")]
            await worker.received(3)
            cut_off = ask(STREAMED, "begun")
            uploading.say(head_of(COMPLETIONS, {"content-length": "100"}))
            assert await idle.rest() == b""
            assert (await uploading.head())[0] == 408
            assert "worker_timeout" in (await cut_off).text
            assert not [task for task in silent if task.done()]
            read.set()
            answers = await asyncio.gather(*silent)
        assert [answer.status_code for answer in answers] == [200] * 3
        assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers[1:])
        assert answers[0].json()["usage"]["total_tokens"] == COST
        tokens = 2 * COST + 2 * (PROMPT_TOKENS + 1)
        await gateway.ended(*["ok"] * 3, "gap_timeout", "upload_timeout", requests=4, tokens=tokens)
