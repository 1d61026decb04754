"""What does a worker's refusal or failure mean to its caller?"""

from typing import NoReturn

import msgspec

from gateway import payloads
from gateway.errors import Overloaded, WorkerFailed
from gateway.relay.ends import Answer

MAX_DETAIL_BYTES = 2000  # of a worker's own failure, for the log


async def fail(answer: Answer) -> NoReturn:
    """A worker's own 5xx, or a redirect: its text goes to the log only."""
    text = b""
    while len(text) < MAX_DETAIL_BYTES and (data := await answer.read()):
        text += data
    raise worker_failure(answer.status, text)


def worker_failure(status: int, text: bytes) -> Exception:
    detail = f"the worker answered {status}: {shown(text)}"
    if status == 503:
        return Overloaded("The model server is busy. Try again shortly.", retry_after_s=1, detail=detail)
    return WorkerFailed(detail)


def shown(text: bytes) -> str:
    return text[:MAX_DETAIL_BYTES].decode(errors="replace")


def status_of(payload: bytes) -> int:
    """The status that a worker's error object names, 502 if it names none."""
    try:
        code = payloads.refusal(payload).error.code
    except msgspec.MsgspecError:
        return 502
    return code if isinstance(code, int) and 400 <= code <= 599 else 502
