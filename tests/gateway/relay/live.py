"""How do the tests feed a stream by hand, on its way from a connection to a caller?"""

import asyncio
from typing import Self

from gateway.upstream.connection import Timeouts
from tests.gateway.relay.relaying import TOKEN, Run, framed
from tests.gateway.upstream.feeding import END, HEAD, PATIENT, asked, leased


class Live:
    """A stream that is fed by hand, on its way to a caller who has a pipe unless it is said otherwise."""

    def __init__(self, piped: bool = True, wants_usage: bool = False, timeouts: Timeouts = PATIENT) -> None:
        self.connection, self.transport = asked(timeouts)
        self.connection.data_received(HEAD)
        self.answer, self.given_back = leased(self.connection)
        self.ran = Run(self.answer, piped=piped, stream=True, wants_usage=wants_usage)
        self.caller = self.ran.caller
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        with self.answer:
            await self.ran.run()

    async def feed(self, *pieces: bytes) -> Self:
        """Each is a read of its own."""
        for piece in pieces:
            self.connection.data_received(piece)
            await rounds()
        return self

    async def end(self) -> Self:
        """By what the worker had to say."""
        await self.feed(END)
        await self.task
        return self


async def rounds() -> None:
    """The loop goes round until tasks wait again."""
    for _ in range(5):
        await asyncio.sleep(0)


async def flowing(piped: bool = True, wants_usage: bool = False) -> Live:
    """With its first token at the caller."""
    live = Live(piped, wants_usage)
    await rounds()
    await live.feed(framed(TOKEN))
    assert live.caller.writes == [TOKEN]
    return live
