"""What stands in for vLLM? `python -m benchmarks.overhead.worker`: chats, ready-made, counted as they go.

Its processes' time is not measured; it is only not to be what everybody waits for.
"""

import asyncio
import signal
import socket
from dataclasses import asdict, dataclass
from typing import cast

import click
import httptools
import msgspec
import uvloop

from benchmarks.footprint.worker import BACKLOG, CHAT_PATH, DEFAULT_TOKENS, Words, response

STATS_PATH = b"/stats"
PACE_PATH = b"/pace"
NOT_FOUND = response(b'{"detail":"Not Found"}', b"404 Not Found")
NOT_UNDERSTOOD = response(b'{"detail":"There was an error parsing the body"}', b"400 Bad Request")
TOKENS_PER_WRITE = 4  # of a stream without pace: as a vLLM that is behind sends them


class Options(msgspec.Struct):
    include_usage: bool = False


class Asked(msgspec.Struct):
    """What a chat request says about its answer. Of two members with one name the last counts, as in vLLM."""

    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream_options: Options | None = None

    @property
    def tokens(self) -> int:
        return self.max_completion_tokens or self.max_tokens or DEFAULT_TOKENS


class Pace(msgspec.Struct):
    """Of streams that begin from now on."""

    interval_s: float  # 0: as fast as the socket takes them


@dataclass(slots=True)
class Counts:
    """Since the start."""

    requests: int = 0  # chats that were understood
    plain: int = 0  # of these, answered in one piece
    whole_streams: int = 0
    broken_streams: int = 0  # the caller went before the end
    open_streams: int = 0
    chunks: int = 0  # events with a token


class Engine:
    """What all connections have in common."""

    def __init__(self, model: str) -> None:
        self.words = Words(model)
        self.counts = Counts()
        self.interval_s = 0.0
        self._plain: dict[int, bytes] = {}
        self._chat = msgspec.json.Decoder(Asked).decode
        self._control = msgspec.json.Decoder(Pace).decode

    def plain(self, tokens: int) -> bytes:
        """An answer in one piece; those of one length are made once."""
        if tokens not in self._plain:
            self._plain[tokens] = self.words.plain(tokens)
        return self._plain[tokens]

    def chat(self, body: bytes) -> Asked:
        """Raises msgspec.DecodeError."""
        return self._chat(body)

    def other(self, target: bytes, body: bytes) -> bytes:
        """The answer to all that is not a chat. Raises msgspec.DecodeError."""
        match target.partition(b"?")[0]:
            case b"/health":
                return response(b"")
            case b"/v1/models":
                return self.words.models
            case path if path == STATS_PATH:
                return response(msgspec.json.encode(asdict(self.counts)))
            case path if path == PACE_PATH:
                self.interval_s = self._control(body).interval_s
                return response(b"{}")
        return NOT_FOUND


class Connection(asyncio.Protocol):
    """Of a gateway: one request after the other."""

    def __init__(self, engine: Engine) -> None:
        self._loop = asyncio.get_running_loop()
        self._engine = engine
        self._next: asyncio.Handle | None = None  # the rest of the stream that is under way
        self._paused = False
        self._left = 0  # tokens of it that are still to be sent
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._left:
            self._left = 0
            self._engine.counts.open_streams -= 1
            self._engine.counts.broken_streams += 1
        if self._next is not None:
            self._next.cancel()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._left and self._next is None:
            self._next = self._loop.call_soon(self._flow)

    def on_message_begin(self) -> None:
        self._target = b""
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        try:
            if self._target == CHAT_PATH:
                self._answer(self._engine.chat(self._body))
            else:
                self._transport.write(self._engine.other(self._target, self._body))
        except msgspec.DecodeError:
            self._transport.write(NOT_UNDERSTOOD)

    def _answer(self, asked: Asked) -> None:
        counts = self._engine.counts
        counts.requests += 1
        if not asked.stream:
            counts.plain += 1
            self._transport.write(self._engine.plain(asked.tokens))
            return
        words = self._engine.words
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        self._ending = (words.usage(asked.tokens) if with_usage else b"") + words.ending
        self._opening = words.opening
        self._left = asked.tokens
        self._interval_s = self._engine.interval_s
        counts.open_streams += 1
        if self._interval_s:
            self._next = self._loop.call_later(self._interval_s, self._tick)
        else:
            self._next = self._loop.call_soon(self._flow)

    def _tick(self) -> None:
        """Send a token. The next waits its whole time, so that a late one never comes together with it."""
        self._say(1)
        self._next = self._loop.call_later(self._interval_s, self._tick) if self._left else None

    def _flow(self) -> None:
        """Send some tokens, and the next as soon as others have had their turn."""
        self._say(min(TOKENS_PER_WRITE, self._left))
        self._next = self._loop.call_soon(self._flow) if self._left and not self._paused else None

    def _say(self, tokens: int) -> None:
        words, counts = self._engine.words, self._engine.counts
        opening, self._opening = self._opening, b""  # comes with the first token, as from vLLM
        self._left -= tokens
        counts.chunks += tokens
        if self._left:
            self._transport.write(opening + words.token * tokens)
            return
        counts.open_streams -= 1
        counts.whole_streams += 1
        self._transport.write(opening + words.token * (tokens - 1) + words.last_token + self._ending)


@click.command()
@click.option("--model", required=True)
@click.option("--ports", default=2, type=click.IntRange(1), help="So many workers, as a gateway sees it.")
def main(model: str, ports: int) -> None:
    """Serve on free ports of 127.0.0.1, which are printed, until SIGTERM."""
    uvloop.run(_serve(model, ports))


async def _serve(model: str, ports: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    engine = Engine(model)
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) for _ in range(ports)]
    for listener in listeners:
        await loop.create_server(lambda: Connection(engine), sock=listener, backlog=BACKLOG)
    click.echo(" ".join(f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in listeners))
    await stop.wait()


if __name__ == "__main__":
    main()
