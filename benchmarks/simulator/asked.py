"""What does a body ask for, and what does vLLM refuse? Bytes to an engine's request."""

import random
import zlib
from array import array
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks.simulator.blocks import TOKEN_BYTES, chain
from benchmarks.simulator.request import Request

DEFAULT_COMPLETION_TOKENS = 16  # vLLM's, of a completion that names no max_tokens
MAX_TOKEN_ID = 2**32 - 1


class Refused(Exception):
    """In vLLM's words, as far as callers and gateways read them."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    """Of two members with one name the last counts, as in vLLM; unknown ones are ignored."""

    model: str | None = None
    prompt: Any = None
    messages: msgspec.Raw = msgspec.Raw(b"")
    tools: msgspec.Raw = msgspec.Raw(b"")
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    ignore_eos: bool = False
    n: int | None = None
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """What one `vllm serve` was started with."""

    name: str
    max_model_len: int
    mean_output_tokens: float  # of answers that end by themselves
    seed: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for one answer."""

    chat: bool
    stream: bool
    include_usage: bool
    finish_reason: str  # how the answer will end
    request: Request


_decoder = msgspec.json.Decoder(_Body)


def read(raw: bytes, chat: bool, model: Model) -> Asked:
    """Raises Refused."""
    try:
        body = _decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise Refused(400, "Bad Request", str(error), "body") from error
    _check(body, model)
    content = _conversation(body) if chat else _prompt(body.prompt)
    prompt_tokens = max(1, len(content) // TOKEN_BYTES)
    if prompt_tokens >= model.max_model_len:
        raise Refused(
            400,
            "BadRequestError",
            f"This model's maximum context length is {model.max_model_len} tokens. However, your request has "
            f"{prompt_tokens} input tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    most = min(_max_tokens(body, chat, model), model.max_model_len - prompt_tokens)
    drawn = most if body.ignore_eos else _drawn_tokens(content, model)
    return Asked(
        chat=chat,
        stream=bool(body.stream),
        include_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
        finish_reason="length" if drawn >= most else "stop",
        request=Request(prompt_tokens, min(drawn, most), chain(content, body.cache_salt or "")),
    )


def _check(body: _Body, model: Model) -> None:
    if body.model not in (None, model.name):
        raise Refused(404, "NotFoundError", f"The model `{body.model}` does not exist.", "model")
    if body.n not in (None, 1):
        raise Refused(400, "BadRequestError", "the simulator gives one answer a request", "n")
    if body.stream_options is not None and not body.stream:
        raise Refused(400, "Bad Request", "Stream options can only be defined when `stream=True`.", "body")


def _max_tokens(body: _Body, chat: bool, model: Model) -> int:
    asked = body.max_tokens
    if chat and body.max_completion_tokens is not None:
        asked = body.max_completion_tokens
    if asked is None:
        return model.max_model_len if chat else DEFAULT_COMPLETION_TOKENS
    if not 1 <= asked <= model.max_model_len:
        raise Refused(400, "BadRequestError", f"max_tokens must be 1 to {model.max_model_len}, got {asked}.")
    return asked


def _conversation(body: _Body) -> bytes:
    """The JSON as it was sent stands for the rendered template: turns that are added leave its beginning."""
    messages = bytes(body.messages)
    if not messages:
        raise Refused(400, "Bad Request", "Field required", "body.messages")
    if not messages.startswith(b"[") or not messages[1:-1].strip():
        raise Refused(400, "BadRequestError", "messages must be a list with something in it", "messages")
    return bytes(body.tools) + messages


def _prompt(prompt: Any) -> bytes:
    """TOKEN_BYTES a token: a text as it is, token ids packed."""
    match prompt:
        case [str() as text] | (str() as text) if text:
            return text.encode()
        case [[*tokens]] | [*tokens] if tokens and all(_is_token(token) for token in tokens):
            return array("I", tokens).tobytes()
    raise Refused(400, "BadRequestError", "one prompt is needed: a text or token ids", "prompt")


def _is_token(token: object) -> bool:
    return type(token) is int and 0 <= token <= MAX_TOKEN_ID


def _drawn_tokens(content: bytes, model: Model) -> int:
    """How many tokens the model would say: the same for the same prompt, on whichever worker."""
    drawn = random.Random(zlib.crc32(content, model.seed))
    return max(1, round(drawn.expovariate(1 / model.mean_output_tokens)))
