"""What does a worker say to a request? It follows from the request's id, so that whoever looks on can tell.

Nothing here is random: worker, caller and checker each come to the same answer by themselves.
"""

import hashlib
import json
from enum import StrEnum
from functools import cache
from typing import Any

from benchmarks.footprint.worker import STREAM_HEAD, response

MODEL = "chaos"
CREATED = 1796045011
CHUNK_END = b"0\r\n\r\n"
PROBE = "p"  # begins the ids of calls that are made when all is over
PROMPT_BYTES_A_TOKEN = 5  # rather more than the gateway begins with: what it reserves is enough


class Manner(StrEnum):
    """How a worker treats a request."""

    WELL = "well"
    FAILS = "fails"  # 500
    BUSY = "busy"  # 503, not begun
    ENDING = "ending"  # 500 of a vLLM that was told to end, not begun
    SILENT = "silent"  # for SILENCE_S, then as it should
    BREAKS = "breaks"  # in the middle of a chunk
    ERRS = "errs"  # an error event in mid-stream
    UNENDED = "unended"  # a stream without [DONE]


NOT_BEGUN = (Manner.BUSY, Manner.ENDING)
# Of a thousand requests at one worker. Few enough that a worker is not ejected for these alone.
SHARES = {
    Manner.FAILS: 5,
    Manner.BUSY: 15,
    Manner.ENDING: 5,
    Manner.SILENT: 5,
    Manner.BREAKS: 8,
    Manner.ERRS: 8,
    Manner.UNENDED: 4,
}
REFUSALS = {
    Manner.FAILS: (b"500 Internal Server Error", "a made-up failure"),
    Manner.BUSY: (b"503 Service Unavailable", "too many unfinished requests"),
    Manner.ENDING: (b"500 Internal Server Error", "cannot schedule new futures after shutdown"),
}


def manner(request_id: str, worker: str) -> Manner:
    """One worker may fail what another does well. None fails a probe."""
    if request_id.startswith(PROBE):
        return Manner.WELL
    drawn = _number(f"{worker} {request_id}") % 1000
    for each, share in SHARES.items():
        if drawn < share:
            return each
        drawn -= share
    return Manner.WELL


def tokens(request_id: str, most: int) -> list[str]:
    """The answer, each token unlike all others of any request: what is lost, doubled or mixed up shows."""
    tag = f"{_number(request_id) % 16**6:06x}"
    return [f" {number}:{tag}" for number in range(_length(request_id, most))]


def _length(request_id: str, most: int) -> int:
    """Half of all answers are cut off by the maximum."""
    return min(most, 1 + _number(f"length {request_id}") % (2 * most))


def finish_reason(request_id: str, most: int) -> str:
    """Of the whole answer."""
    return "length" if 1 + _number(f"length {request_id}") % (2 * most) > most else "stop"


def prompt_tokens(prompt: str) -> int:
    return 1 + len(prompt) // PROMPT_BYTES_A_TOKEN


@cache
def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class Words:
    """Of one answer, ready to be sent. chat: of /v1/chat/completions."""

    def __init__(self, request_id: str, most: int, prompt: str, *, chat: bool) -> None:
        self.tokens = tokens(request_id, most)
        self._finish = finish_reason(request_id, most)
        self._id = request_id
        self._chat = chat
        self._usage = _usage(prompt_tokens(prompt), len(self.tokens))

    def plain(self) -> bytes:
        """The body of an answer that is not streamed."""
        text = "".join(self.tokens)
        said = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        kind = "chat.completion" if self._chat else "text_completion"
        return _json(self._object(kind, [_choice(self._finish, **said)]) | {"usage": self._usage})

    def opening(self) -> bytes:
        """Head and, of a chat, the event before the first token."""
        role = self._event(_choice(None, delta={"role": "assistant", "content": ""})) if self._chat else b""
        return STREAM_HEAD + role

    def token(self, number: int) -> bytes:
        last = number == len(self.tokens) - 1
        text = self.tokens[number]
        said = {"delta": {"content": text}} if self._chat else {"text": text}
        return self._event(_choice(self._finish if last else None, **said))

    def ending(self, *, with_usage: bool) -> bytes:
        """What comes after the last token."""
        usage = _framed(_json(self._object(self._kind, []) | {"usage": self._usage})) if with_usage else b""
        return usage + _framed(b"[DONE]") + CHUNK_END

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _event(self, choice: dict[str, Any]) -> bytes:
        return _framed(_json(self._object(self._kind, [choice])))

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": CREATED, "model": MODEL, "choices": choices}


def error_event() -> bytes:
    """Of a stream that fails in its middle, and its end."""
    error = {"message": "a made-up failure", "type": "InternalServerError", "param": None, "code": 500}
    return _framed(_json({"error": error})) + _framed(b"[DONE]") + CHUNK_END


def refusal(how: Manner) -> bytes:
    """A whole answer, of a manner of REFUSALS."""
    status, message = REFUSALS[how]
    error = {"message": message, "type": "server_error", "param": None, "code": int(status[:3])}
    return response(_json({"error": error}), status)


def _choice(finish: str | None, **content: Any) -> dict[str, Any]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def _json(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _framed(payload: bytes) -> bytes:
    """An event in a chunk of its own."""
    event = b"data: %b\n\n" % payload
    return b"%x\r\n%b\r\n" % (len(event), event)
