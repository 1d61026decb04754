"""Is a gateway that changes, loses or invents something found out before it is measured?"""

import asyncio
import json
from collections.abc import Callable
from typing import cast

import pytest

from benchmarks.footprint.worker import TOKEN
from benchmarks.overhead import checks
from benchmarks.overhead.checks import TOKENS, check_answers, check_counted, check_plain, check_stream
from benchmarks.overhead.contenders import Target
from benchmarks.overhead.invalid import Invalid
from tests.benchmarks.overhead.made import serving, serving_by


def event(content: str | None) -> str:
    return "data: " + json.dumps({"choices": [{"delta": {"content": content}}]}) + "\n\n"


def stream(*contents: str | None, end: str = "data: [DONE]\n\n") -> str:
    return "".join(map(event, contents)) + end


def plain(content: str) -> str:
    return json.dumps({"choices": [{"message": {"content": content}}]})


def test_whole_answers_are_taken() -> None:
    check_plain(200, plain(TOKEN * TOKENS))
    check_stream(200, stream("", *[TOKEN] * TOKENS, None))


@pytest.mark.parametrize(
    ("status", "text", "problem"),
    [
        (502, "Bad Gateway", "answered with 502: Bad Gateway"),
        (200, plain(TOKEN * (TOKENS - 1)), "instead of 5 tokens"),
        (200, "{}", "is no answer"),
        (200, "[]", "is no answer"),
    ],
)
def test_an_answer_that_is_not_whole_is_told(status: int, text: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        check_plain(status, text)


@pytest.mark.parametrize(
    ("status", "text", "problem"),
    [
        (429, "no", "answered with 429: no"),
        (200, "", "a stream ends with ''"),
        (200, stream(*[TOKEN] * TOKENS, end=""), "a stream ends with"),
        (200, stream(*[TOKEN] * (TOKENS + 1)), "instead of 5 tokens"),
        (200, stream(TOKEN * 2, *[TOKEN] * (TOKENS - 2)), "instead of 5 tokens"),
        (200, 'data: {"choices":[]}\n\n' + stream(*[TOKEN] * TOKENS), "is no answer"),
        (200, "data: {\n\n" + stream(*[TOKEN] * TOKENS), "is no answer"),
    ],
)
def test_a_stream_that_is_not_token_for_token_is_told(status: int, text: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        check_stream(status, text)


def test_our_workers_pass() -> None:
    with serving() as worker:
        check_answers(Target(worker.url, "sk-any"))
        assert worker.counts().requests == 2


def test_a_gateway_of_ours_that_takes_any_key_is_told() -> None:
    with serving() as worker, pytest.raises(Invalid, match="a wrong key was answered with 200"):
        check_answers(Target(worker.url, "sk-any", admin_url="http://127.0.0.1:1"))


class Metrics(asyncio.Protocol):
    """An admin port that counts one request more each time it is asked."""

    def __init__(self, asked: list[int], degraded: int) -> None:
        self._asked = asked
        self._degraded = degraded

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._asked.append(1)
        text = (
            f'# TYPE gateway_requests counter\ngateway_requests_total{{outcome="ok"}} {len(self._asked)}\n'
            f"# TYPE gateway_store_degraded gauge\ngateway_store_degraded {self._degraded}\n"
        ).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))


def counting(degraded: int = 0) -> Callable[[], Metrics]:
    asked: list[int] = []
    return lambda: Metrics(asked, degraded)


def test_requests_that_are_counted_in_the_end_are_counted() -> None:
    with serving_by(counting()) as admin_url:
        check_counted(Target("", "", admin_url=admin_url), 3)


def test_a_request_that_is_not_counted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "COUNTED_LIMIT_S", 0.0)
    with (
        serving_by(counting()) as admin_url,
        pytest.raises(Invalid, match="have seen 100 requests, and 1 were counted"),
    ):
        check_counted(Target("", "", admin_url=admin_url), 100)


def test_limits_that_were_not_kept_in_the_store_are_told() -> None:
    with serving_by(counting(degraded=1)) as admin_url, pytest.raises(Invalid, match="not kept in the store"):
        check_counted(Target("", "", admin_url=admin_url), 1)


def test_others_count_as_they_like() -> None:
    check_counted(Target("", ""), 100)
