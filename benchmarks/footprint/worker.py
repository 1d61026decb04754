"""What stands in for vLLM? `python -m benchmarks.footprint.worker`: a worker that streams at a steady pace.

It costs next to nothing, so that what is measured is the gateway. Chats only; every token is TOKEN.
"""

import asyncio
import json
import signal
import socket
from typing import Any, cast

import click
import httptools
import uvloop

CHAT_PATH = b"/v1/chat/completions"
TOKEN = " steady"
PROMPT_TOKENS = 7  # every prompt counts as this many
DEFAULT_TOKENS = 16  # of an answer whose request names no max_tokens
MAX_MODEL_LEN = 1_000_000
BACKLOG = 4096
IDENTITY = {"id": "chatcmpl-9cb0a2671f395322", "created": 1796045011}

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def response(body: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole answer with JSON in it."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


class Words:
    """What one model says, ready to be sent."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.models = response(
            _compact(
                {
                    "object": "list",
                    "data": [
                        {"id": model, "object": "model", "owned_by": "vllm", "max_model_len": MAX_MODEL_LEN}
                    ],
                }
            )
        )
        self.opening = STREAM_HEAD + self._chunk([_choice(delta={"role": "assistant", "content": ""})])
        self.token = self._chunk([_choice(delta={"content": TOKEN})])
        self.last_token = self._chunk([_choice("length", delta={"content": TOKEN})])
        self.ending = _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def usage(self, tokens: int) -> bytes:
        return self._chunk([], usage=_usage(tokens))

    def plain(self, tokens: int) -> bytes:
        message = {"role": "assistant", "content": TOKEN * tokens}
        content = {"choices": [_choice("length", message=message)], "usage": _usage(tokens)}
        return response(_compact(IDENTITY | {"object": "chat.completion", "model": self._model} | content))

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        content = {"object": "chat.completion.chunk", "model": self._model, "choices": choices, **more}
        return _framed(b"data: %b\n\n" % _compact(IDENTITY | content))


def _compact(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _choice(finish: str | None = None, **content: Any) -> dict[str, Any]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish}


def _usage(tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "total_tokens": PROMPT_TOKENS + tokens,
        "completion_tokens": tokens,
    }


class SteadyWorker(asyncio.Protocol):
    """One connection. The first token of a stream comes at once, each other `interval_s` after the last."""

    def __init__(self, words: Words, interval_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._words = words
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_message_begin(self) -> None:
        self._target = b""
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._target == CHAT_PATH:
            self._answer(json.loads(self._body))  # of two members with one name the last counts, as in vLLM
        elif self._target == b"/health":
            self._transport.write(response(b""))
        elif self._target == b"/v1/models":
            self._transport.write(self._words.models)
        else:
            self._transport.write(response(b'{"detail":"Not Found"}', b"404 Not Found"))

    def _answer(self, asked: dict[str, Any]) -> None:
        tokens = asked.get("max_tokens") or DEFAULT_TOKENS
        if not asked.get("stream"):
            self._transport.write(self._words.plain(tokens))
            return
        with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        last_words = (self._words.usage(tokens) if with_usage else b"") + self._words.ending
        self._transport.write(self._words.opening)
        self._say(self._loop.time(), tokens, last_words)

    def _say(self, due_s: float, left: int, last_words: bytes) -> None:
        """Send a token that was due at this loop time, `left` counting it, and see to the next."""
        if left == 1:
            self._timer = None
            self._transport.write(self._words.last_token + last_words)
            return
        self._transport.write(self._words.token)
        next_s = due_s + self._interval_s  # from when it was due, so that a late one delays no other
        self._timer = self._loop.call_at(next_s, self._say, next_s, left - 1, last_words)


@click.command()
@click.option("--model", required=True)
@click.option("--interval-s", required=True, type=click.FloatRange(0), help="Between two tokens.")
def main(model: str, interval_s: float) -> None:
    """Serve on a free port of 127.0.0.1, which is printed, until SIGTERM."""
    uvloop.run(serve(Words(model), interval_s))


async def serve(words: Words, interval_s: float) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    server = await loop.create_server(lambda: SteadyWorker(words, interval_s), sock=listener, backlog=BACKLOG)
    click.echo(f"listening on http://127.0.0.1:{listener.getsockname()[1]}")
    await stop.wait()
    server.close()


if __name__ == "__main__":
    main()
