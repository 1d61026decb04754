"""Workers' scripts that wait until a test lets them go on."""

import asyncio

from tests.fakes import Received, Reply, plain_answer

TOKEN = {"choices": [{"index": 0, "text": "a"}]}


class Gate:
    """Answers once it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, request: Received, reply: Reply) -> None:
        await self.open.wait()
        await plain_answer(request, reply)


class StreamGate:
    """Streams one token, and the other once it is opened. holds_plain: whether plain answers wait as well."""

    def __init__(self, *, holds_plain: bool) -> None:
        self.open = asyncio.Event()
        self._holds_plain = holds_plain

    async def __call__(self, request: Received, reply: Reply) -> None:
        if not request.json().get("stream"):
            if self._holds_plain:
                await self.open.wait()
            await plain_answer(request, reply)
            return
        await reply.stream_head()
        await reply.event(TOKEN)
        await self.open.wait()
        await reply.event(TOKEN)
        await reply.done()
