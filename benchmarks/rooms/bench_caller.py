"""The caller's connection: a request off the wire, the task that serves it, its answer on the wire."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive, Scope, Send

from benchmarks.overhead.requests import PATH
from benchmarks.rooms.conftest import Timed
from benchmarks.rooms.ends import JSON, ignore
from benchmarks.rooms.stand import ANSWER_BODY, CALLERS, CLOCK, case, request, settings
from benchmarks.rooms.wires import Loop, deaf, served
from gateway.exchange import Line
from gateway.headers import lines, told


class Counter:
    """An application that has every answer ready, and serves without ASGI, as completions do."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.head = lines([JSON]) + told(case().trip(), CLOCK())
        self.answered = 0
        self.line: Line  # of the last request

    @property
    def direct(self) -> Mapping[bytes, Callable[[Line], Coroutine[Any, Any, None]]]:
        return {PATH.encode(): self._serve}

    async def _serve(self, line: Line) -> None:
        await line.body(self._most_bytes)
        line.watch(ignore)
        line.unwatch()
        await line.reply(200, self.head, ANSWER_BODY)
        self.answered += 1
        self.line = line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("a request took the way through ASGI")


@contextmanager
def counter(loop: Loop) -> Iterator[Counter]:
    rules = settings().server
    made = Counter(rules.max_body_bytes)
    with served(loop, made, rules):
        yield made


def bench_caller(loop: Loop, timed: Timed) -> None:
    asked = request(stream=False)

    async def come() -> list[asyncio.Protocol]:
        return [loop.call(deaf) for _ in range(CALLERS)]

    async def visit(count: int) -> None:
        for _ in range(count // CALLERS):
            for connection in connections:
                connection.data_received(asked)
            await asyncio.sleep(0)  # a turn of the loop, in which all are served

    with counter(loop) as at:
        connections = loop.run_until_complete(come())
        loop.run_until_complete(visit(CALLERS))
        assert at.answered == CALLERS
        timed(visit)


def bench_answer(loop: Loop, timed: Timed) -> None:
    """The same answer again and again, to one request."""

    async def visit() -> None:
        loop.call(deaf).data_received(request(stream=False))
        await asyncio.sleep(0)

    async def answer(count: int) -> None:
        for _ in range(count):
            await reply(200, head, ANSWER_BODY)

    with counter(loop) as at:
        loop.run_until_complete(visit())
        reply, head = at.line.reply, at.head
        timed(answer)


def bench_task(loop: Loop, timed: Timed) -> None:
    async def nothing() -> None:
        """To be done."""

    async def begin(count: int) -> None:
        for _ in range(count // CALLERS):
            tasks = [loop.create_task(nothing()) for _ in range(CALLERS)]
            await asyncio.sleep(0)
            assert tasks[-1].done()

    timed(begin)


def bench_waiting_task(loop: Loop, timed: Timed) -> None:
    """A task that waits once, as for a worker."""

    async def wait(future: asyncio.Future[None]) -> None:
        await future

    async def begin(count: int) -> None:
        for _ in range(count // CALLERS):
            futures = [loop.create_future() for _ in range(CALLERS)]
            tasks = [loop.create_task(wait(future)) for future in futures]
            await asyncio.sleep(0)
            for future in futures:
                future.set_result(None)
            await asyncio.sleep(0)
            assert tasks[-1].done()

    timed(begin)
