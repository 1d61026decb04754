"""What does a worker's refusal or failure mean to its caller?"""

from typing import NoReturn

import msgspec

from gateway import payloads
from gateway.errors import WorkerBusy, WorkerDeclined, WorkerFailed
from gateway.relay.ends import Answer

MAX_DETAIL_BYTES = 2000  # of a worker's own failure, for the log
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
