"""Which bytes does vLLM send? Responses and server-sent events, members in its order."""

import json
from http import HTTPStatus
from typing import Any

from benchmarks.simulator.asked import Asked, Refused

TOKEN = " tok"  # TOKEN_BYTES bytes, so that an answer counts the same when it comes back in a prompt
JSON = "application/json"

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def response(status: int, body: bytes = b"", content_type: str = JSON) -> bytes:
    """A whole one."""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nserver: uvicorn\r\n"
    return f"{head}content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def refusal(refused: Refused) -> bytes:
    error = {
        "message": str(refused),
        "type": refused.kind,
        "param": refused.param,
        "code": refused.status,
    }
    return response(refused.status, compact({"error": error}))


def models(name: str, max_model_len: int, created: int) -> bytes:
    card = {"id": name, "object": "model", "created": created, "owned_by": "vllm", "root": name}
    return response(
        200, compact({"object": "list", "data": [{**card, "parent": None, "max_model_len": max_model_len}]})
    )


def compact(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class Answer:
    """The bytes of one answer. identity: what the request was called, without vLLM's prefix."""

    def __init__(self, asked: Asked, model: str, identity: str, created: int) -> None:
        self._asked = asked
        prefix, self._kind = ("chatcmpl", "chat.completion") if asked.chat else ("cmpl", "text_completion")
        self._head = {"id": f"{prefix}-{identity}"}
        self._origin = {"created": created, "model": model}
        self._chunk_kind = "chat.completion.chunk" if asked.chat else "text_completion"
        self.token = self._chunk([self._said(None)])  # made once, sent for each token but the last

    def opening(self) -> bytes:
        """What precedes the first token."""
        role = [self._choice({"delta": {"role": "assistant", "content": ""}}, None)]
        return STREAM_HEAD + (self._chunk(role) if self._asked.chat else b"")

    def ending(self, cached_tokens: int) -> bytes:
        """The last token and what follows it."""
        last = self._chunk([self._said(self._asked.finish_reason)])
        usage = self._chunk([], usage=self._usage(cached_tokens)) if self._asked.include_usage else b""
        return last + usage + STREAM_END

    def whole(self, cached_tokens: int) -> bytes:
        """The response to a request that did not ask for a stream."""
        text = TOKEN * self._asked.request.output_tokens
        said = {"message": {"role": "assistant", "content": text}} if self._asked.chat else {"text": text}
        choices = [self._choice(said, self._asked.finish_reason)]
        usage = {"usage": self._usage(cached_tokens)}
        return response(
            200, compact(self._head | {"object": self._kind} | self._origin | {"choices": choices} | usage)
        )

    def _said(self, finish_reason: str | None) -> dict[str, Any]:
        said = {"delta": {"content": TOKEN}} if self._asked.chat else {"text": TOKEN}
        return self._choice(said, finish_reason)

    def _choice(self, said: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        end = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None, "token_ids": None}
        return {"index": 0, **said, **end}

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        content = self._head | {"object": self._chunk_kind} | self._origin | {"choices": choices, **more}
        data = b"data: %b\n\n" % compact(content)
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _usage(self, cached_tokens: int) -> dict[str, Any]:
        prompt, output = self._asked.request.prompt_tokens, self._asked.request.output_tokens
        counts = {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}
        return {**counts, "prompt_tokens_details": {"cached_tokens": cached_tokens}}
