"""Is every trip counted once, under labels that callers cannot invent, and logged in one line?"""

import time
from typing import Any

import pytest

from gateway.accounting import MOST_PUT_OFF, NONE, SECONDS, TOKEN_SECONDS, Ledger, Tallies
from gateway.model import Endpoint, Quotas, Tenant, Trip, Usage
from gateway.tally import Tally
from tests.gateway.test_model import Clock, caller, job, trip


class Books:
    """A ledger and what it wrote."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.lines: list[dict[str, Any]] = []
        self.metered: list[Trip] = []
        self.ledger = Ledger(self.clock, self.lines.append, meter=self.metered.append)


def walked(**fields: Any) -> Trip:
    """A trip that ended well after 2 s, its first token after 0.5 s, 0.25 s of it in the queue."""
    whole: dict[str, Any] = {
        "caller": caller(),
        "job": job(bucket=1, prompt_tokens=14),
        "worker": "w1",
        "queue_s": 0.25,
        "sent_at": 1000.375,
        "first_token_at": 1000.5,
        "usage": Usage(7, 2, 3),
        "charged": Usage(8, 4),
        "status": 200,
        "outcome": "ok",
    }
    return trip(**(whole | fields))


def closed(**fields: Any) -> Books:
    books = Books()
    books.clock.now = 1002.0
    books.ledger.close(walked(**fields))
    return books


def sums(tallies: Tallies) -> dict[tuple[str, ...], tuple[int, float]]:
    """How many, and their sum, by labels."""
    return {labels: (sum(tally.counts), tally.total) for labels, tally in tallies.items()}


def test_a_request_is_counted_by_how_it_ended() -> None:
    books = closed()
    books.ledger.close(walked(outcome="client_gone", endpoint=Endpoint.COMPLETIONS))
    assert books.ledger.requests == {
        ("chat", "small", "acme", "ok"): 1,
        ("completions", "small", "acme", "client_gone"): 1,
    }


def test_a_stranger_and_an_unread_request_make_no_series_of_their_own() -> None:
    unread = {"job": None, "sent_at": None, "first_token_at": None, "usage": None}
    ledger = closed(caller=None, outcome="not_json", **unread).ledger
    assert ledger.requests == {("chat", NONE, NONE, "not_json"): 1}
    assert sums(ledger.seconds) == {("chat", NONE): (1, 2.0)}
    for tallies in (ledger.overhead, ledger.ttft, ledger.inter_token, ledger.estimate_error):
        assert tallies == {}
    assert ledger.tokens == {}


def test_a_trips_times_are_counted_each_in_its_own_histogram() -> None:
    ledger = closed().ledger
    assert sums(ledger.seconds) == {("chat", "small"): (1, 2.0)}
    assert sums(ledger.ttft) == {("small", "1"): (1, 0.5)}
    assert sums(ledger.overhead) == {(): (1, 0.125)}  # without the queue


def test_histograms_of_other_labels_are_counted_apart() -> None:
    tallies = Tallies(SECONDS)
    tallies["a",].add(0.1)
    tallies["a",].add(0.1)
    tallies["b",].add(700.0)
    assert sums(tallies) == {("a",): (2, 0.2), ("b",): (1, 700.0)}
    assert tallies["b",].counts[-1] == 1


def test_the_gaps_of_a_stream_are_added_when_it_ends() -> None:
    books = Books()
    for size in (0.004, 0.25):
        gaps = books.ledger.gaps()
        gaps.add(size)
        books.ledger.close(walked(gaps=gaps))
    whole = Tally(TOKEN_SECONDS)
    whole.add(0.004)
    whole.add(0.25)
    assert books.ledger.inter_token == {("small",): whole}


def test_a_refusal_of_the_worker_is_no_first_token() -> None:
    assert closed(outcome="worker_refused", usage=None).ledger.ttft == {}


def test_tokens_are_counted_as_the_worker_reports_them() -> None:
    books = closed()
    books.ledger.close(walked(usage=Usage(3, 0), caller=caller(Tenant("globex"))))
    assert books.ledger.tokens == {
        ("acme", "small", "prompt"): 7,
        ("acme", "small", "completion"): 2,
        ("globex", "small", "prompt"): 3,
        ("globex", "small", "completion"): 0,
    }


def test_the_estimate_is_held_against_the_real_count() -> None:
    assert sums(closed().ledger.estimate_error) == {(): (1, 2.0)}


def test_a_prompt_of_no_tokens_says_nothing_of_the_estimate() -> None:
    assert closed(usage=Usage(0, 2)).ledger.estimate_error == {}


def test_waits_are_counted_by_bucket_and_outcome() -> None:
    ledger = Books().ledger
    ledger.queued(2, 0.5, "served")
    ledger.queued(2, 1.0, "served")
    ledger.queued(0, 60.0, "client_gone")
    assert sums(ledger.queue_wait) == {("2", "served"): (2, 1.5), ("0", "client_gone"): (1, 60.0)}


def test_the_meter_is_told_of_each_request_of_a_known_caller() -> None:
    books = closed(outcome="client_gone")
    assert [trip.outcome for trip in books.metered] == ["client_gone"]
    books.ledger.close(walked(caller=None))
    assert len(books.metered) == 1


def test_the_log_line_tells_the_whole_trip_and_no_secret() -> None:
    before = time.time()
    [line] = closed(detail="the worker answered 500").lines
    assert before <= line.pop("time") <= time.time()
    assert line == {
        "request_id": "req-1",
        "tenant": "acme",
        "key": "acme-1",
        "endpoint": "chat",
        "model": "small",
        "stream": False,
        "status": 200,
        "outcome": "ok",
        "worker": "w1",
        "tried": [],
        "bucket": 1,
        "prompt_tokens": 7,
        "cached_tokens": 3,
        "completion_tokens": 2,
        "charged_tokens": 12,
        "estimated_prompt_tokens": 14,
        "queue_ms": 250.0,
        "ttft_ms": 500.0,
        "total_ms": 2000.0,
        "detail": "the worker answered 500",
    }


def test_the_log_line_of_a_stranger_leaves_open_what_is_not_known() -> None:
    [line] = closed(
        caller=None,
        job=None,
        worker="",
        queue_s=0.0,
        sent_at=None,
        first_token_at=None,
        usage=None,
        charged=None,
    ).lines
    known = {name: value for name, value in line.items() if value not in (None, "", 0, [])}
    assert known.keys() == {
        "time",
        "request_id",
        "tenant",
        "endpoint",
        "model",
        "status",
        "outcome",
        "total_ms",
    }
    assert (line["tenant"], line["model"], line["ttft_ms"]) == (NONE, NONE, None)


@pytest.mark.parametrize("outcome", ["ok", "client_gone", "client_stalled", "incomplete", "worker_refused"])
def test_one_trip_is_one_line_and_one_count(outcome: str) -> None:
    books = closed(outcome=outcome, quotas=Quotas())
    assert [line["outcome"] for line in books.lines] == [outcome]
    assert sum(books.ledger.requests.values()) == 1


# Many at a time


class Later:
    """What was put off."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.lines: list[dict[str, Any]] = []
        self.ledger = Ledger(Clock(), self.lines.append, self.calls.append)


def test_what_is_put_off_is_counted_together_and_once() -> None:
    later = Later()
    for _ in range(3):
        later.ledger.close(walked())
    later.ledger.queued(0, 0.5, "served")
    assert (len(later.calls), later.lines, later.ledger.requests) == (1, [], {})
    later.calls[0]()
    later.ledger.fold()
    assert (len(later.lines), sum(later.ledger.requests.values())) == (3, 3)
    assert sums(later.ledger.queue_wait) == {("0", "served"): (1, 0.5)}


def test_what_is_put_off_has_a_bound() -> None:
    later = Later()
    for _ in range(MOST_PUT_OFF - 1):
        later.ledger.close(walked())
    assert later.lines == []
    later.ledger.close(walked())
    assert len(later.lines) == MOST_PUT_OFF


def test_a_request_with_a_large_body_is_not_put_off() -> None:
    later = Later()
    later.ledger.close(walked(job=job(body=(b"{", b"}"))))
    assert len(later.lines) == 1
