"""Does the caller ask at its rate, take whole answers only, and say what is wrong with others?"""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from benchmarks.footprint.worker import TOKEN
from benchmarks.overhead import caller
from benchmarks.overhead.caller import Latencies, at_once, at_rate
from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.requests import PLAIN_TOKENS, body, wired
from tests.benchmarks.overhead.made import serving, serving_by
from tests.ports import free_ports

PLAIN = body(PLAIN_TOKENS, stream=False)


def called(url: str, per_s: float = 2000.0, seconds: float = 0.25, connections: int = 4) -> Latencies:
    request = wired(url, "sk-any", PLAIN)
    return at_rate(url, request, PLAIN_TOKENS, per_s, seconds, connections=connections, seed=1)


class Answers(asyncio.Protocol):
    """Anybody's answer to the first request; then it hangs up, or waits for ever."""

    def __init__(self, answer: bytes, *, hang_up: bool) -> None:
        self._answer = answer
        self._hang_up = hang_up

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer)
        if self._hang_up:
            self._transport.close()


def answering(text: bytes, status: bytes = b"200 OK", *, hang_up: bool = False) -> Callable[[], Answers]:
    answer = b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text), text)
    return lambda: Answers(answer, hang_up=hang_up)


def test_requests_come_at_their_rate_and_each_is_answered() -> None:
    with serving() as worker:
        latencies = called(worker.url)
        counts = worker.counts()

    assert 400 < len(latencies.takes_s) < 600  # of 500 on average; the seed is given
    assert len(latencies.late_s) == len(latencies.takes_s) == counts.plain == counts.requests
    assert all(late_s >= 0 for late_s in latencies.late_s)
    assert 0 < latencies.p50_ms <= latencies.p99_ms
    assert latencies.late_p99_ms >= 0


def test_the_same_seed_asks_as_often_of_whoever_answers() -> None:
    with serving() as one, serving() as other:
        assert len(called(one.url).takes_s) == len(called(other.url).takes_s)


def test_who_waits_for_a_connection_is_asked_all_the_same() -> None:
    with serving() as worker:
        many, one = called(worker.url, connections=8), called(worker.url, connections=1)
    assert len(many.takes_s) == len(one.takes_s)


def test_at_the_lowest_rate_there_is_one_request() -> None:
    with serving() as worker:
        latencies = called(worker.url, per_s=0.001, seconds=0.01)
    assert len(latencies.takes_s) == 1
    assert latencies.p50_ms == latencies.p99_ms


def test_streams_at_once_are_taken_to_their_end() -> None:
    with serving() as worker:
        request = wired(worker.url, "sk-any", body(100, stream=True))
        seconds = at_once(worker.url, request, 100, streams=20)
        counts = worker.counts()

    assert seconds > 0
    assert (counts.whole_streams, counts.broken_streams, counts.chunks) == (20, 0, 2000)


def test_a_stream_that_lacks_a_token_is_told() -> None:
    with serving() as worker:
        request = wired(worker.url, "sk-any", body(9, stream=True))
        with pytest.raises(Invalid, match="lacks 1 tokens"):
            at_once(worker.url, request, 10, streams=1)


def test_a_stream_without_its_end_is_told() -> None:
    with serving_by(answering(TOKEN.encode() * 3)) as url, pytest.raises(Invalid, match="or its end"):
        at_once(url, wired(url, "sk-any", body(3, stream=True)), 3, streams=1)


def test_a_stream_that_stalls_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "STALL_LIMIT_S", 0.05)
    with serving(interval_s=1000.0) as worker:
        request = wired(worker.url, "sk-any", body(3, stream=True))
        with pytest.raises(Invalid, match="no stream went on"):
            at_once(worker.url, request, 3, streams=2)


def test_requests_that_nobody_answers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "STALL_LIMIT_S", 0.05)
    with serving_by(lambda: Answers(b"", hang_up=False)) as url, pytest.raises(Invalid, match="not answered"):
        called(url, seconds=0.05)


def test_a_refusal_is_told() -> None:
    with (
        serving_by(answering(b"no", b"429 Too Many Requests")) as url,
        pytest.raises(Invalid, match="answered with 429"),
    ):
        called(url)


def test_who_hangs_up_is_told() -> None:
    with (
        serving_by(lambda: Answers(b"", hang_up=True)) as url,
        pytest.raises(Invalid, match="closed instead of an answer"),
    ):
        called(url)


def test_who_does_not_speak_http_is_told() -> None:
    with (
        serving_by(lambda: Answers(b"+PONG\r\n", hang_up=False)) as url,
        pytest.raises(Invalid, match="is not HTTP"),
    ):
        called(url)


def test_nobody_there_is_an_error_of_the_system() -> None:
    with pytest.raises(ConnectionRefusedError):
        called(f"http://127.0.0.1:{free_ports(1)[0]}")


def test_percentiles_are_of_all_requests() -> None:
    latencies = Latencies([0.001] * 98 + [0.009, 0.010], [0.0] * 100)
    assert latencies.p50_ms == pytest.approx(1)
    assert 8.9 < latencies.p99_ms < 10
    assert latencies.late_p99_ms == 0
