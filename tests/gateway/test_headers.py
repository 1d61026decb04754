"""Do the headers of an answer say what is true, in the form that SDKs read?"""

import pytest

from gateway.errors import (
    BadRequest,
    Draining,
    GatewayError,
    MethodNotAllowed,
    NoWorker,
    RateLimited,
    Unauthorized,
    WorkerTimeout,
)
from gateway.headers import by_name, go_duration, lines, of_error, request_id, split, told
from gateway.model import Quota, Quotas
from tests.gateway.test_model import job, trip


@pytest.mark.parametrize("value", [b"a", b"A.b_c-9", b"x" * 64])
def test_the_callers_own_harmless_id_is_kept(value: bytes) -> None:
    assert request_id({b"host": b"h", b"x-request-id": value}) == value.decode()


@pytest.mark.parametrize("value", [b"", b"x" * 65, b"a b", b"a\n", b"a/b", b"\xc3\xa9", b'"'])
def test_any_other_id_is_replaced(value: bytes) -> None:
    made = request_id({b"x-request-id": value})
    assert made != value.decode("latin-1")
    assert len(made) == 32


def test_ids_that_are_made_differ() -> None:
    assert request_id({}) != request_id({})


def test_headers_are_found_by_name_and_those_that_come_twice_are_joined() -> None:
    headers = [(b"a", b"1"), (b"b", b"2")]
    assert by_name(headers) == {b"a": b"1", b"b": b"2"}
    assert by_name([*headers, (b"a", b"3"), (b"c", b"")]) == {b"a": b"1, 3", b"b": b"2", b"c": b""}
    assert by_name([]) == {}


def test_of_two_ids_neither_counts() -> None:
    fields = by_name([(b"x-request-id", b"one"), (b"x-request-id", b"two")])
    assert request_id(fields) not in ("one", "two")


def test_headers_are_split_as_they_were_joined() -> None:
    headers = [(b"a", b"1: 2"), (b"b", b"")]
    assert lines(headers) == b"a: 1: 2\r\nb: \r\n"
    assert list(split(lines(headers))) == headers
    assert list(split(lines([]))) == []


def test_an_answer_to_a_stranger_tells_its_id_and_the_time_it_took() -> None:
    headers = dict(split(told(trip(began=1000.0), 1000.0129)))
    assert headers == {b"x-request-id": b"req-1", b"openai-processing-ms": b"12"}


def test_an_answer_tells_of_its_way_and_of_the_limits() -> None:
    quotas = Quotas(Quota(600, 599, 0.1), Quota(1000, 250, 45.0))
    walked = trip(quotas=quotas, job=job(bucket=2), worker="w1", queue_s=0.25)
    headers = dict(split(told(walked, walked.began)))
    assert headers == {
        b"x-request-id": b"req-1",
        b"openai-processing-ms": b"0",
        b"x-ratelimit-limit-requests": b"600",
        b"x-ratelimit-remaining-requests": b"599",
        b"x-ratelimit-reset-requests": b"100ms",
        b"x-ratelimit-limit-tokens": b"1000",
        b"x-ratelimit-remaining-tokens": b"250",
        b"x-ratelimit-reset-tokens": b"45s",
        b"x-gateway-bucket": b"2",
        b"x-gateway-queue-ms": b"250",
        b"x-gateway-worker": b"w1",
    }


@pytest.mark.parametrize(
    ("quotas", "kinds"),
    [
        (Quotas(), set()),
        (Quotas(requests=Quota(1, 1, 0)), {"requests"}),
        (Quotas(tokens=Quota(1, 1, 0)), {"tokens"}),
    ],
)
def test_a_limit_that_does_not_exist_is_not_told(quotas: Quotas, kinds: set[str]) -> None:
    names = [name.decode() for name, _ in split(told(trip(quotas=quotas), 1000.0))]
    assert {name.rpartition("-")[2] for name in names if name.startswith("x-ratelimit-")} == kinds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0001, "1ms"),
        (0.012, "12ms"),
        (0.9991, "1s"),
        (0.999, "999ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (1.25, "1.25s"),
        (10.0625, "10.063s"),
        (20, "20s"),
        (59.9995, "1m0s"),
        (60, "1m0s"),
        (90.5, "1m30.5s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
        (3661.5, "1h1m1.5s"),
        (86400, "24h0m0s"),
    ],
)
def test_a_duration_reads_as_in_go_and_is_never_told_too_short(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


@pytest.mark.parametrize(
    ("retry_after_s", "whole", "ms"),
    [
        (2.0, b"2", b"2000"),
        (2.0001, b"3", b"2001"),
        (0.2, b"1", b"200"),
        (0.00001, b"1", b"1"),
        (-5, b"1", b"1"),  # a wait that is over by now
        (None, b"1", b"1000"),
        (0, b"1", b"1000"),
        (300, b"60", b"60000"),
    ],
)
def test_a_refusal_says_when_to_come_back(retry_after_s: float | None, whole: bytes, ms: bytes) -> None:
    for error in (
        RateLimited("tokens", "Wait.", retry_after_s=retry_after_s),
        NoWorker("None.", retry_after_s=retry_after_s),
    ):
        assert dict(of_error(error)) == {b"retry-after": whole, b"retry-after-ms": ms}


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (BadRequest("No."), {}),
        (WorkerTimeout("late"), {b"x-should-retry": b"false"}),
        (BadRequest("No.", should_retry=True), {b"x-should-retry": b"true"}),
        (MethodNotAllowed("No.", "GET, HEAD"), {b"allow": b"GET, HEAD"}),
        (Unauthorized(), {b"www-authenticate": b"Bearer"}),
        (
            Draining("Later.", retry_after_s=1, should_retry=False),
            {
                b"retry-after": b"1",
                b"retry-after-ms": b"1000",
                b"x-should-retry": b"false",
                b"connection": b"close",
            },
        ),
    ],
)
def test_other_errors_say_what_helps(error: GatewayError, headers: dict[bytes, bytes]) -> None:
    assert dict(of_error(error)) == headers
