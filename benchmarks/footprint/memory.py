"""What does a gateway keep in memory of an idle connection, an open stream, a waiting request?"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.footprint.connections import idle_connections
from benchmarks.footprint.rig import Rig
from benchmarks.footprint.streams import RequestFailed, asked_streams, chat, open_streams
from benchmarks.targets import Row

MODEL = "steady"
ENDLESS_TOKENS = 1_000_000
SETTLE_S = 10.0  # for counts to go back to 0 after the last answer; else what is left is the result
QUEUE_S = 120.0  # for all requests to come into the queue

MB = 1e6
KB = 1e3


async def idle(rig: Rig) -> list[Row]:
    """The memory of a process that has served nothing yet."""
    return [Row("idle process", rig.rss_bytes() / MB, "MB", at_most=80)]


async def connections(rig: Rig, count: int) -> list[Row]:
    """The memory of a connection that has made a request and may make another."""
    before_bytes = rig.rss_bytes()
    async with idle_connections(count, rig.url, rig.key, chat(MODEL, 1, stream=False)) as opened:
        grown_bytes = rig.rss_bytes() - before_bytes
        if lost := sum(connection.is_lost for connection in opened):
            raise RequestFailed(f"{lost} of {count} connections were closed by the gateway")
    return [Row(f"idle connection, {count} of them", grown_bytes / count / KB, "KB", at_most=16)]


async def streams(rig: Rig, count: int) -> list[Row]:
    """The memory of an open stream, in a fresh process and in one that has had as many before."""
    first_bytes = await _bytes_per_stream(rig, count)
    again_bytes = await _bytes_per_stream(rig, count)
    return [
        Row(f"open stream, the first {count}", first_bytes / KB, "KB", at_most=32),
        Row(f"open stream, {count} again", again_bytes / KB, "KB", at_most=32),
    ]


async def _bytes_per_stream(rig: Rig, count: int) -> float:
    before_bytes = rig.rss_bytes()
    body = chat(MODEL, ENDLESS_TOKENS, stream=True)
    async with open_streams(count, rig.url, rig.key, body):
        grown_bytes = rig.rss_bytes() - before_bytes
    await rig.reaches("gateway_in_flight", 0, SETTLE_S)
    return grown_bytes / count


async def waiting(rig: Rig, count: int, body_bytes: int, at_most_kb: float) -> list[Row]:
    """The memory of a request that waits in the queue, its body included."""
    body = chat(MODEL, ENDLESS_TOKENS, stream=True)
    async with open_streams(1, rig.url, rig.key, body):  # has the only place there is
        before_bytes = rig.rss_bytes()
        async with _queued(rig, count, body_bytes):
            grown_bytes = rig.rss_bytes() - before_bytes
    await rig.reaches("gateway_in_flight", 0, SETTLE_S)
    name = f"waiting request of {body_bytes / KB:g} KB, {count} of them"
    return [Row(name, grown_bytes / count / KB, "KB", at_most=at_most_kb)]


@asynccontextmanager
async def _queued(rig: Rig, count: int, body_bytes: int) -> AsyncIterator[None]:
    """So many more requests, all of which wait; they hang up with the block. Raises RequestFailed."""
    room = body_bytes - len(chat(MODEL, 1, "", stream=True))
    async with asked_streams(count, rig.url, rig.key, chat(MODEL, 1, "x" * room, stream=True)):
        found = await rig.reaches("gateway_queue_depth", count, QUEUE_S)
        if found != count:
            raise RequestFailed(f"{found:g} of {count} requests wait in the queue")
        yield
    await rig.reaches("gateway_queue_depth", 0, SETTLE_S)
