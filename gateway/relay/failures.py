"""What does a worker's refusal or failure mean to its caller?"""

import json
from typing import NoReturn

import msgspec

from gateway import payloads
from gateway.errors import CallerError, WorkerBusy, WorkerDeclined, WorkerFailed
from gateway.model import Trip
from gateway.relay.ends import Answer, Outlet, passed

MAX_DETAIL_BYTES = 2000  # of a worker's own failure, for the log
MAX_REFUSAL_BYTES = 65536  # of one that is told in a stream; no longer one is an error object
ENDING = b"cannot schedule new futures"  # says vLLM from SIGTERM on, until what it has has ended


async def fail(answer: Answer) -> NoReturn:
    """A worker's own 5xx, or a redirect: its text goes to the log only."""
    text = b""
    while len(text) < MAX_DETAIL_BYTES and (data := await answer.read()):
        text += data
    raise worker_failure(answer.status, text, _retry_after_s(answer))


def worker_failure(status: int, text: bytes, retry_after_s: float = 1.0) -> Exception:
    detail = f"the worker answered {status}: {shown(text)}"
    if status == 503:
        return WorkerBusy(detail, retry_after_s)
    if ENDING in text:
        return WorkerDeclined(detail)
    return WorkerFailed(detail)


async def refuse_late(answer: Answer, text: bytes, outlet: Outlet, trip: Trip) -> None:
    """An answer without a stream, to a caller who has the head of one. `text` has come of it.

    Raises WorkerFailed if it is no refusal.
    """
    if answer.status < 400:
        raise WorkerFailed("it answered a request for a stream, and it was none")
    while len(text) < MAX_REFUSAL_BYTES and (data := await answer.read()):
        text += data
    trip.outcome = "worker_refused"
    await outlet.reply(answer.status, passed(answer.headers), _as_object(answer.status, text))


def _as_object(status: int, text: bytes) -> bytes:
    """What SDKs look for in an event; as it came, if it is one."""
    try:
        payloads.refusal(text)
    except msgspec.MsgspecError:
        return json.dumps(CallerError(shown(text), code=str(status)).body()).encode()
    return text


def _retry_after_s(answer: Answer) -> float:
    """When the worker would have its caller come back: a second, if it does not say, a minute at most."""
    told = next((value for name, value in answer.headers if name == b"retry-after"), b"")
    return float(min(max(int(told), 1), 60)) if told.isdigit() and len(told) < 6 else 1.0


def shown(text: bytes) -> str:
    return text[:MAX_DETAIL_BYTES].decode(errors="replace")


def status_of(payload: bytes) -> int:
    """The status that a worker's error object names, 502 if it names none."""
    try:
        code = payloads.refusal(payload).error.code
    except msgspec.MsgspecError:
        return 502
    return code if isinstance(code, int) and 400 <= code <= 599 else 502
