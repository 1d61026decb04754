"""How do the tests ask a worker and take its answer?"""

import asyncio
from collections.abc import Callable

from gateway.upstream import Answer, WorkerClient

PATH = "/v1/chat/completions"
JSON = [(b"content-type", b"application/json")]
BODY = [b'{"messages":[]', b"}"]

MakeClient = Callable[..., WorkerClient]  # of a URL and settings


async def whole(answer: Answer) -> bytes:
    """The rest of the body; closes the answer."""
    parts = []
    async with answer:
        while part := await answer.read():
            parts.append(part)
    return b"".join(parts)


async def ask(client: WorkerClient) -> bytes:
    return await whole(await client.post(PATH, JSON, BODY))


async def until(is_met: Callable[[], bool]) -> None:
    """Let the loop go round until it is so; the test's timeout ends it otherwise."""
    while not is_met():  # noqa: ASYNC110 - what is asked for here has no event
        await asyncio.sleep(0)
