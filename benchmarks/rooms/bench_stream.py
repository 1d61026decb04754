"""What a stream costs beside that: to begin and end it, and to look at each chunk."""

from benchmarks.rooms.conftest import Timed
from benchmarks.rooms.ends import StreamAnswer, Taker, Unmoved
from benchmarks.rooms.stand import CLOCK, WORDS, case, event
from gateway.relay import Relay
from gateway.sse import Watch
from gateway.upstream.response import ResponseReader


def bench_relay_stream(timed: Timed) -> None:
    of = case(stream=True)
    trip = of.trip()
    opening = event(WORDS.opening.partition(b"\r\n\r\n")[2])
    ending = event(WORDS.usage(1)) + b"data: [DONE]\n\n"
    relay, answer, taker, watcher = Relay(CLOCK), StreamAnswer(opening, ending), Taker(), Unmoved()

    async def run(count: int) -> None:
        for _ in range(count):
            await relay.run(answer, of.job, taker, trip, watcher)

    timed(run)
    assert trip.outcome == "ok"
    assert trip.events == 1
    assert trip.usage is not None


def bench_chunks(timed: Timed) -> None:
    reader = ResponseReader()
    reader.start()
    reader.feed(WORDS.opening)

    async def read(count: int) -> None:
        for _ in range(count):
            reader.of_whole_chunks(WORDS.token)

    assert reader.of_whole_chunks(WORDS.token) == event(WORDS.token)
    timed(read)


def bench_watch(timed: Timed) -> None:
    watch = Watch(hide_usage=True)
    token = event(WORDS.token)

    async def look_on(count: int) -> None:
        for _ in range(count):
            watch.feed(token)

    timed(look_on)
    assert watch.events
