"""The worker's bytes → the caller, as they come, with an eye on what they say."""

from collections.abc import Awaitable, Callable

import msgspec

from gateway import payloads
from gateway.errors import WorkerRefusedCredentials
from gateway.model import Job, Trip
from gateway.relay.ends import OF_STREAMS, Answer, Outlet, Pipe, Watcher, passed
from gateway.relay.failures import fail, refuse_late
from gateway.relay.stream import Stream

__all__ = ["OF_STREAMS", "Answer", "Outlet", "Pipe", "Relay", "Watcher"]

MAX_READ_BYTES = 16 * 1024 * 1024  # of a plain answer, kept to find its usage; beyond, usage stays unknown
EVENT_STREAM = b"text/event-stream"


class Relay:
    """Brings answers to their callers. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def run(self, answer: Answer, job: Job, outlet: Outlet, trip: Trip, watcher: Watcher) -> Awaitable[None]:
        """Bring one answer to `outlet`, and note in `trip` what it was.

        Raises WorkerError, Overloaded; what was sent by then, the outlet knows.
        """
        if answer.status >= 300 and not 400 <= answer.status < 500:
            return fail(answer)
        if answer.status in (401, 403):
            raise WorkerRefusedCredentials(f"the worker answered {answer.status}; check its api_key_env")
        if job.stream and answer.status == 200 and _content_type(answer).startswith(EVENT_STREAM):
            return Stream(self._clock, answer, job, outlet, trip, watcher).run()
        return self._plain(answer, outlet, trip, watcher)

    async def _plain(self, answer: Answer, outlet: Outlet, trip: Trip, watcher: Watcher) -> None:
        data = answer.take() or await answer.read()
        if outlet.started:
            await refuse_late(answer, data, outlet, trip)
            return
        watcher.prompt_done()
        trip.first_token_at = self._clock()
        parts, size = [data], len(data)
        outcome = "ok" if answer.status < 400 else "worker_refused"
        if size == answer.length:
            trip.outcome = outcome
            await outlet.reply(answer.status, passed(answer.headers), data)
        else:
            await outlet.start(answer.status, passed(answer.headers), answer.length)
            # look ahead, so that the last bytes leave together with the end
            while size != answer.length and (following := await answer.read()):
                await outlet.send(data)
                data = following
                size += len(data)
                if size <= MAX_READ_BYTES:
                    parts.append(data)
            trip.outcome = outcome
            await outlet.finish(data)
        if answer.status < 400 and size <= MAX_READ_BYTES:
            _read_usage(parts, trip)


def _content_type(answer: Answer) -> bytes:
    return next((value.lower() for name, value in answer.headers if name == b"content-type"), b"")


def _read_usage(parts: list[bytes], trip: Trip) -> None:
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    try:
        payload = payloads.whole(body)
    except msgspec.MsgspecError:
        trip.outcome = "incomplete"
        return
    if payload.usage:
        trip.usage = payload.usage.usage()
