"""What do callers see who come when they come, however slow the answers are?

An open loop: a call is sent at its time, or its waiting counts from there all the same, so that a slow
target is not asked less (no coordinated omission). One connection a call. What an SDK would spend on each
chunk is saved: chunks are counted, and only the last bytes of an answer are read as JSON. That costs about
15 µs of processor time a token and 0.8 ms a call, measured with uvloop on two busy cores.
"""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import httptools

from benchmarks.routing.loads import Call, prompt

Outcome = Literal["ok", "shed", "failed", "cut", "gave_up"]

ANSWER_S = 600.0  # from the first token on: of the longest, 2,000 tokens, each may take 0.3 s
RAMP_SHARE = 0.25  # of a closed loop's time, until as many answers end as begin
_PATH = b"/v1/completions"
_WORKER_HEADER = b"x-gateway-worker"
_EVENT = b"data: {"
_DONE = b"data: [DONE]"
_ENDING_BYTES = 2_048  # the last token's event, that of the usage, and [DONE]


class NotServed(Exception):
    """A closed loop has nothing to measure: a call was not answered, or the calls ran out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a call. Times are seconds after the start."""

    call: Call
    outcome: Outcome  # shed: 429 or 503; failed: no token came; cut: some came; gave_up: none in time
    worker: str  # "" where the target does not say
    sent_s: float
    ttft_s: float | None  # from the planned time to the first token
    ended_s: float
    tokens: int  # received: those of the usage, without one as many as there were events
    cached_tokens: int  # of the prompt, as told in the usage

    @property
    def late_s(self) -> float:
        """How late the client itself was."""
        return self.sent_s - self.call.at_s

    @property
    def tpot_s(self) -> float | None:
        """Per output token after the first."""
        if self.ttft_s is None:
            return None
        return (self.ended_s - self.call.at_s - self.ttft_s) / max(1, self.tokens - 1)


async def play(
    url: str, keys: Mapping[str, str], model: str, calls: Sequence[Call], patience_s: float, seed: int
) -> list[Answer]:
    """Send the calls, which are in order, at their times and wait for the end of all.

    keys: of each tenant. patience_s: who has no token so long after the planned time hangs up.
    seed: of the prompts.
    """
    began_s = time.perf_counter()
    client = _Client(url, model, began_s)
    tasks: list[asyncio.Task[Answer]] = []
    async with asyncio.TaskGroup() as group:
        for call in calls:
            await asyncio.sleep(max(0.0, began_s + call.at_s - time.perf_counter()))
            tasks.append(group.create_task(client.ask(call, keys[call.tenant], patience_s, seed)))
    return [task.result() for task in tasks]


async def in_turn(url: str, key: str, model: str, calls: Iterator[Call], seed: int) -> list[Answer]:
    """Each call when the one before it has ended; their times do not matter."""
    began_s = time.perf_counter()
    client = _Client(url, model, began_s)
    answers = []
    for call in calls:
        now = replace(call, at_s=time.perf_counter() - began_s)
        answers.append(await client.ask(now, key, ANSWER_S, seed))
    return answers


async def saturate(
    url: str,
    key: str,
    model: str,
    calls: Iterator[Call],
    in_flight: int,
    lasts_s: float,
    note: Callable[[Answer], object] = lambda answer: None,
) -> float:
    """Answers a second when so many calls are always under way: what the target can do at most.

    calls: more than are needed; their times do not matter. Counted from RAMP_SHARE of the time on.
    note: is told of each answer. Raises NotServed.
    """
    began_s = time.perf_counter()
    client = _Client(url, model, began_s)
    ends_s: list[float] = []

    async def ask_on() -> None:
        for call in calls:
            now = replace(call, at_s=time.perf_counter() - began_s)
            answer = await client.ask(now, key, ANSWER_S, seed=0)
            if answer.outcome != "ok":
                raise NotServed(f"a call ended as {answer.outcome}")
            ends_s.append(answer.ended_s)
            note(answer)

    try:
        async with asyncio.timeout(lasts_s), asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(ask_on())
    except TimeoutError:
        ramp_s = RAMP_SHARE * lasts_s
        return sum(end_s >= ramp_s for end_s in ends_s) / (lasts_s - ramp_s)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    raise NotServed("the calls ran out")


class _Client:
    """Of one target."""

    def __init__(self, url: str, model: str, began_s: float) -> None:
        """began_s: by time.perf_counter, the start that times are counted from."""
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._netloc = parts.netloc.encode()
        self._model = json.dumps(model).encode()
        self._began_s = began_s

    async def ask(self, call: Call, key: str, patience_s: float, seed: int) -> Answer:
        exchange = _Exchange(self._request(call, key, patience_s, seed))
        sent_s = time.perf_counter() - self._began_s
        patience = asyncio.timeout(call.at_s + patience_s - sent_s)
        try:
            async with patience:
                await asyncio.get_running_loop().create_connection(lambda: exchange, *self._address)
                await exchange.begun
            async with asyncio.timeout(ANSWER_S):
                await exchange.ended
        except OSError:  # no connection, or TimeoutError: what came until then counts
            pass
        finally:
            exchange.hang_up()
        return self._answer(call, sent_s, exchange, patience.expired())

    def _request(self, call: Call, key: str, patience_s: float, seed: int) -> bytes:
        """As the SDK asks, which tells how long it will wait."""
        body = (
            b'{"model":%b,"prompt":"%b","max_tokens":%d,"ignore_eos":true,"stream":true,'
            b'"stream_options":{"include_usage":true}}'
            % (self._model, prompt(call, seed), call.output_tokens)
        )
        return (
            b"POST %b HTTP/1.1\r\nhost: %b\r\nauthorization: Bearer %b\r\n"
            b"content-type: application/json\r\nx-stainless-read-timeout: %.3f\r\n"
            b"content-length: %d\r\n\r\n%b" % (_PATH, self._netloc, key.encode(), patience_s, len(body), body)
        )

    def _answer(self, call: Call, sent_s: float, exchange: "_Exchange", gave_up: bool) -> Answer:
        events = exchange.last_events()
        errors = sum("error" in event for event in events)
        usage = next((event["usage"] for event in events if event.get("usage")), None)
        tokens = usage["completion_tokens"] if usage else exchange.events - errors
        has_token = exchange.status == 200 and tokens > 0 and not gave_up
        return Answer(
            call=call,
            outcome="gave_up" if gave_up else _outcome(exchange, has_token, errors > 0),
            worker=exchange.worker,
            sent_s=sent_s,
            ttft_s=exchange.first_s - self._began_s - call.at_s if has_token else None,
            ended_s=exchange.ended_s - self._began_s,
            tokens=tokens if has_token else 0,
            cached_tokens=_cached_tokens(usage) if usage else 0,
        )


def _cached_tokens(usage: Mapping[str, Any]) -> int:
    details = usage.get("prompt_tokens_details") or {}  # null where vLLM is not asked to tell
    return int(details.get("cached_tokens") or 0)


def _outcome(exchange: "_Exchange", has_token: bool, has_error: bool) -> Outcome:
    if exchange.status in (429, 503):
        return "shed"
    if not has_token:
        return "failed"
    return "ok" if exchange.is_done and not has_error else "cut"


class _Exchange(asyncio.Protocol):
    """One call on its connection. Times are those of time.perf_counter."""

    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.begun = loop.create_future()  # the first token is here, or the end
        self.ended = loop.create_future()
        self.first_s = math.nan
        self.ended_s = math.nan
        self.events = 0
        self.worker = ""
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._is_complete = False  # by the rules of HTTP
        self._tail = b""

    @property
    def status(self) -> int:
        """0: nothing came."""
        return int(self._parser.get_status_code())

    @property
    def is_done(self) -> bool:
        return self._is_complete and _DONE in self._tail

    def last_events(self) -> list[Any]:
        """The content of those that are whole among the last bytes."""
        found = []
        for piece in self._tail.split(b"data: ")[1:]:
            with contextlib.suppress(json.JSONDecodeError):  # [DONE], or one that broke off
                found.append(json.loads(piece))
        return found

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _WORKER_HEADER:
            self.worker = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        seen = self._tail[1 - len(_EVENT) :] + data  # what is taken of the tail is too short for an event
        self._tail = (self._tail + data)[-_ENDING_BYTES:]
        new = seen.count(_EVENT)
        if new and not self.events:
            self.first_s = time.perf_counter()
            _wake(self.begun)
        self.events += new

    def on_message_complete(self) -> None:
        self._is_complete = True
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def hang_up(self) -> None:
        """Of one that has ended too: it uses its connection once."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if math.isnan(self.ended_s):
            self.ended_s = time.perf_counter()
            _wake(self.begun)
            _wake(self.ended)


def _wake(waited_for: asyncio.Future[None]) -> None:
    if not waited_for.done():  # it is, where whoever waited has given up
        waited_for.set_result(None)
