"""What stands in for vLLM? `python -m benchmarks.chaos.worker`: a worker that follows the script, and notes
who came and when it stopped working for whom."""

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import Any, cast

import click
import httptools
import uvloop

from benchmarks.chaos.script import MODEL, NOT_BEGUN, REFUSALS, Manner, Words, error_event, manner, refusal
from benchmarks.chaos.visits import VisitLog
from benchmarks.footprint.worker import response

CHAT = b"/v1/chat/completions"
COMPLETIONS = b"/v1/completions"
MAX_MODEL_LEN = 100_000
BACKLOG = 1024
SILENCE_S = 8.0  # longer than the gateway waits for a first byte
HALF_A_CHUNK = b'40\r\ndata: {"id":'
MODELS = response(
    json.dumps(
        {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": MAX_MODEL_LEN}]}
    ).encode()
)


class ChaosWorker(asyncio.Protocol):
    """One connection. interval_s: between two tokens, whether or not the answer is streamed."""

    def __init__(self, name: str, interval_s: float, visits: VisitLog) -> None:
        self._name = name
        self._interval_s = interval_s
        self._visits = visits
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def on_message_begin(self) -> None:
        self._target = b""
        self._request_id = ""
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._request_id = value.decode("ascii")

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._target in (CHAT, COMPLETIONS):
            asked = json.loads(self._body)  # of two members with one name the last counts, as in vLLM
            self._task = asyncio.get_running_loop().create_task(self._serve(asked))
        elif self._target == b"/health":
            self._transport.write(response(b""))
        elif self._target == b"/v1/models":
            self._transport.write(MODELS)
        else:
            self._transport.write(response(b'{"detail":"Not Found"}', b"404 Not Found"))

    async def _serve(self, asked: dict[str, Any]) -> None:
        how = manner(self._request_id, self._name)
        answer = _Answer(self._transport, self._visits, self._visits.came(self._request_id, how))
        chat = self._target == CHAT
        prompt = asked["messages"][-1]["content"] if chat else asked["prompt"]
        words = Words(self._request_id, asked["max_tokens"], prompt, chat=chat)
        try:
            if how in REFUSALS:
                if how not in NOT_BEGUN:
                    await asyncio.sleep(self._interval_s)
                answer.end(how, refusal(how))
                return
            if how is Manner.SILENT:
                await asyncio.sleep(SILENCE_S)
            if asked.get("stream"):
                with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
                await self._stream(answer, words, how, with_usage)
            else:
                await self._think(answer, words)
                answer.end("done", response(words.plain()))
        except asyncio.CancelledError:
            answer.end("left")
            raise

    async def _think(self, answer: "_Answer", words: Words) -> None:
        for _ in words.tokens:
            await asyncio.sleep(self._interval_s)
            answer.tokens += 1

    async def _stream(self, answer: "_Answer", words: Words, how: Manner, with_usage: bool) -> None:
        fails = how in (Manner.BREAKS, Manner.ERRS, Manner.UNENDED)
        said = len(words.tokens) // 2 if fails else len(words.tokens)
        self._transport.write(words.opening())
        for number in range(said):
            await asyncio.sleep(self._interval_s)
            answer.say(words.token(number))
        if how is Manner.BREAKS:
            answer.end(how, HALF_A_CHUNK)
            self._transport.close()
        elif how is Manner.ERRS:
            answer.end(how, error_event())
        elif how is Manner.UNENDED:
            answer.end(how, b"0\r\n\r\n")
        else:
            answer.end("done", words.ending(with_usage=with_usage))


class _Answer:
    """What has been said so far, noted down before it goes out."""

    def __init__(self, transport: asyncio.Transport, visits: VisitLog, visit: int) -> None:
        self._transport = transport
        self._visits = visits
        self._visit = visit
        self.tokens = 0

    def say(self, data: bytes) -> None:
        if not self.tokens:
            self._visits.first(self._visit)
        self.tokens += 1
        self._transport.write(data)

    def end(self, how: str, data: bytes = b"") -> None:
        self._visits.ended(self._visit, how, self.tokens)
        if data:
            self._transport.write(data)


@click.command()
@click.option("--name", required=True)
@click.option("--port", required=True, type=int)
@click.option("--interval-s", required=True, type=click.FloatRange(0), help="Between two tokens.")
@click.option("--visits", required=True, type=click.Path(dir_okay=False, path_type=Path))
def main(name: str, port: int, interval_s: float, visits: Path) -> None:
    """Serve on a port of 127.0.0.1 until SIGTERM."""
    uvloop.run(serve(name, port, interval_s, VisitLog(visits, name)))


async def serve(name: str, port: int, interval_s: float, visits: VisitLog) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    server = await loop.create_server(lambda: ChaosWorker(name, interval_s, visits), sock=listener)
    click.echo(f"listening on http://127.0.0.1:{listener.getsockname()[1]}")
    await stop.wait()
    server.close()


if __name__ == "__main__":
    main()
