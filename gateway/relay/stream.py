"""One event stream, from its first event to the end."""

import asyncio
import logging
from collections.abc import Callable

from gateway import sse
from gateway.errors import WorkerError, WorkerFailed
from gateway.model import Job, Trip
from gateway.relay.ends import OF_STREAMS, Answer, Outlet, Pipe, Watcher, passed
from gateway.relay.failures import shown, status_of, worker_failure

log = logging.getLogger(__name__)

TOLD_EVERY = 4  # tokens; of single ones several may come in one read, which says nothing of their pace
LINGER_S = 1.0  # for the end of a body whose last event has gone out, so that the connection can be reused


class Stream:
    """Brings its events to the caller, and notes in `trip` what they were.

    Where there is a pipe to the caller, the worker's bytes go on as they come in, and no task runs in
    between; else the task sends on what it reads. Either way the same eye is on them.
    """

    __slots__ = (
        "_answer", "_before", "_clock", "_gaps", "_outlet", "_pipe", "_rest", "_tell", "_told", "_told_at",
        "_trip", "_watch", "_watcher",
    )  # fmt: skip

    def __init__(
        self,
        clock: Callable[[], float],
        answer: Answer,
        job: Job,
        outlet: Outlet,
        trip: Trip,
        watcher: Watcher,
    ) -> None:
        self._clock = clock
        self._answer = answer
        self._outlet = outlet
        self._trip = trip
        self._watcher = watcher
        self._tell = watcher.tokens
        self._watch = sse.Watch(hide_usage=not job.wants_usage)
        self._gaps = trip.gaps
        self._before = self._told_at = 0.0  # of the latest read, and of the one that was told
        self._told = 0  # events
        self._pipe: Pipe | None = None
        self._rest = b""  # what a sink had enough with

    async def run(self) -> None:
        self._trip.progress = self._watch
        try:
            first = await self._first()
            if first is not None:
                await self._outlet.start(200, [*passed(self._answer.headers), *OF_STREAMS], None)
                await self._follow(first)
        finally:
            self._trip.events = self._watch.events
            self._trip.usage = self._watch.usage

    async def _first(self) -> bytes | None:
        """All up to and with the first event; None if that was a refusal and has been answered.

        vLLM answers 200 before it checks some things, and then refuses in the first event. Until that has
        come, nothing is sent, so that the caller gets the status that it would have got without streaming.
        """
        data = b""
        watch = self._watch
        while not (watch.events or watch.done or watch.may_be_inside):
            received = await self._answer.read()
            data += watch.feed(received)
            if watch.error is not None:
                await self._refuse(watch.error)
                return None
            if not received:
                raise WorkerFailed("a stream ended before its first event")
        self._watcher.first_token()
        self._trip.first_token_at = self._clock()
        return data

    async def _follow(self, data: bytes) -> None:
        answer, watch, outlet = self._answer, self._watch, self._outlet
        self._before = self._told_at = self._clock()
        self._told = watch.events
        ended = False
        while not (ended or self._is_over()):
            if data:
                await outlet.send(data)
            self._pipe = outlet.pipe(answer.hold)
            if self._pipe is not None:
                await answer.pour(self._sink)
                data, ended = self._rest, not self._is_over()
            else:
                received = await answer.read()
                data, ended = self._look(received), not received
        await self._end(data)

    def _is_over(self) -> bool:
        return self._watch.done or self._watch.error is not None

    def _look(self, received: bytes) -> bytes:
        """Take note of what has come; gives back what may go on."""
        now = self._clock()
        watch = self._watch
        if self._gaps is not None and received:
            self._gaps.add(now - self._before)
        data = watch.feed(received)
        if (count := watch.events - self._told) >= TOLD_EVERY:
            self._tell(self._told_at, now, count)
            self._told, self._told_at = watch.events, now
        self._before = now
        return data

    def _sink(self, received: bytes, chunks: bytes | None) -> bool:
        """Runs as the worker's bytes come in, with no task in between."""
        data = self._look(received)
        watch = self._watch
        if watch.done or watch.error is not None:
            self._rest = data
            return False
        pipe = self._pipe
        assert pipe is not None
        if chunks is not None and data is received:
            pipe.write_chunks(chunks)
        elif data:
            pipe.write(data)
        return True

    async def _end(self, data: bytes) -> None:
        watch, outlet = self._watch, self._outlet
        if watch.done:
            self._trip.outcome = "ok"
            await outlet.finish(data)
            await self._linger()
        elif watch.error is not None:
            if data:
                await outlet.send(data)
            # a worker's own failure goes to the log; the caller gets ours in its place
            raise WorkerFailed(f"in mid-stream: {shown(watch.error)}")
        else:
            self._trip.outcome = "incomplete"  # no [DONE]; nothing is invented in its place
            await outlet.finish(watch.rest())

    async def _refuse(self, payload: bytes) -> None:
        status = status_of(payload)
        if status >= 500:
            raise worker_failure(status, payload)
        self._trip.outcome = "worker_refused"
        await self._outlet.reply(status, [(b"content-type", b"application/json")], payload)

    async def _linger(self) -> None:
        """Take the end of the body, which the worker sends apart from its last event."""
        answer = self._answer
        answer.hold(False)  # it does not wait for its caller to take the end
        try:
            if answer.take() == b"":
                return
            async with asyncio.timeout(LINGER_S):
                while await answer.read():
                    pass
        except (TimeoutError, WorkerError) as error:
            log.debug("a stream's connection is not reused: %s", error)
