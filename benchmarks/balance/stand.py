"""What is measured: the gateway's processes and its HTTP, with an application that only says who it is.

`python -m benchmarks.balance.stand WAY PROCESSES` says where it listens, and of each process that it serves.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import settings
from gateway.accepting import Place
from gateway.forks import Seat, Shift
from gateway.processes import Pace, Parent
from gateway.server import BACKLOG, listen, running
from gateway.signals import until_told_to_stop

Way = Literal["gateway", "first come", "own sockets"]
WAYS: tuple[Way, ...] = get_args(Way)
HOST = "127.0.0.1"


def app(number: int) -> ASGIApp:
    """Says in each answer which process it is of. An answer at /stream goes on until the caller leaves."""
    headers = [(b"x-process", b"%d" % number), (b"x-pid", b"%d" % os.getpid())]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_stream = scope["path"] == "/stream"
        length = [] if is_stream else [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers + length})
        await send({"type": "http.response.body", "body": b"ok", "more_body": is_stream})
        while is_stream and (await receive())["type"] != "http.disconnect":
            pass

    return answer


def listeners(way: Way, count: int) -> Sequence[socket.socket]:
    """For each process the socket at which it accepts. The parent keeps them open."""
    if way != "own sockets":
        return [listen("port", HOST, 0)] * count
    first = socket.create_server((HOST, 0), backlog=BACKLOG, reuse_port=True)
    address = first.getsockname()
    return [
        first,
        *(socket.create_server(address, backlog=BACKLOG, reuse_port=True) for _ in range(count - 1)),
    ]


def work(way: Way, sockets: Sequence[socket.socket]) -> Callable[[Seat], None]:
    """What each process does."""

    async def serve(seat: Seat) -> None:
        place = Place(seat.loads, seat.number) if way == "gateway" else None

        async def drain(hurry: asyncio.Event) -> None:
            """The callers have left."""

        async with running([(app(seat.number), sockets[seat.number])], settings.Server(), place):
            await asyncio.sleep(0)  # by now it accepts
            os.write(1, b"process %d serves\n" % seat.number)
            await until_told_to_stop(drain, lifeline=seat.lifeline)

    return lambda seat: uvloop.run(serve(seat))


def main(way: Way, count: int) -> int:
    sockets = listeners(way, count)
    print(f"listening on {sockets[0].getsockname()[1]}", flush=True)
    at_once = Pace(settled_s=0.0)  # however often one is killed, it is replaced as after a long life
    return Parent(count, Shift(work(way, sockets), drain_s=0.0), at_once).run()


if __name__ == "__main__":
    sys.exit(main(WAYS[WAYS.index(sys.argv[1])], int(sys.argv[2])))
