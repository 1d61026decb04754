"""What does vLLM answer? Ready scripts for the fake worker, and the bodies and frames they send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fakes import Received, Reply, Script

MODEL = "smollm2"
MAX_MODEL_LEN = 2048
PROMPT_TOKENS = 7  # every prompt counts as this many
TOKEN = " glad"  # every generated token


def compact(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse_event(content: object) -> bytes:
    return b"data: %b\n\n" % (content if isinstance(content, bytes) else compact(content))


def response_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


@dataclass
class Completion:
    """The objects of one answer, members in the order in which vLLM writes them."""

    chat: bool
    tokens: int
    cut_off: bool  # max_tokens ended it

    def plain(self) -> dict[str, Any]:
        text = TOKEN * self.tokens
        content = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        whole = self._object("chat.completion", [self._choice(content, self._finish)])
        return {**whole, "usage": self._usage()}

    def events(self, include_usage: bool) -> list[dict[str, Any]]:
        token = {"delta": {"content": TOKEN}} if self.chat else {"text": TOKEN}
        choices = [self._choice({"delta": {"role": "assistant", "content": ""}}, None)] if self.chat else []
        choices += [self._choice(token, None)] * (self.tokens - 1) + [self._choice(token, self._finish)]
        events = [self._object("chat.completion.chunk", [choice]) for choice in choices]
        if include_usage:
            events.append({**self._object("chat.completion.chunk", []), "usage": self._usage()})
        return events

    @property
    def _finish(self) -> str:
        return "length" if self.cut_off else "stop"

    def _object(self, chat_kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        identity, kind = ("chatcmpl-1", chat_kind) if self.chat else ("cmpl-1", "text_completion")
        return {"id": identity, "object": kind, "created": 1796045011, "model": MODEL, "choices": choices}

    def _choice(self, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish}

    def _usage(self) -> dict[str, Any]:
        total = PROMPT_TOKENS + self.tokens
        return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": total, "completion_tokens": self.tokens}


def answer_of(tokens: int) -> Script:
    """Answers like vLLM with so many tokens (fewer if max_tokens says so), plain or streamed as asked."""

    async def script(request: Received, reply: Reply) -> None:
        asked = request.json()
        limit = asked.get("max_completion_tokens") or asked.get("max_tokens") or tokens
        answer = Completion(request.target.endswith("/chat/completions"), min(tokens, limit), limit <= tokens)
        if not asked.get("stream"):
            await reply.json(answer.plain())
            return
        await reply.stream_head()
        for event in answer.events(bool((asked.get("stream_options") or {}).get("include_usage"))):
            await reply.event(event)
        await reply.done()

    return script


plain_answer = answer_of(8)


async def answer_probe(request: Received, reply: Reply, max_model_len: int = MAX_MODEL_LEN) -> None:
    """GET /health, /v1/models and /metrics; 404 for all else."""
    if request.target == "/health":
        await reply.send(response_head(200, {"content-length": "0"}))
    elif request.target == "/v1/models":
        card = {"id": MODEL, "object": "model", "owned_by": "vllm", "root": f"/models/{MODEL}"}
        await reply.json(
            {"object": "list", "data": [{**card, "parent": None, "max_model_len": max_model_len}]}
        )
    elif request.target == "/metrics":
        text = (
            f'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{model_name="{MODEL}"}} 0\n'
        )
        head = {"content-type": "text/plain; version=0.0.4", "content-length": str(len(text))}
        await reply.send(response_head(200, head) + text.encode())
    else:
        await reply.json({"detail": "Not Found"}, status=404)
