"""Is every trip counted once, under labels that callers cannot invent, and told to Prometheus as agreed?"""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.accounting import NONE, GatewayCollector, Ledger
from gateway.model import Endpoint, Quotas, Tenant, Trip, Usage, Worker
from tests.gateway.test_model import Clock, caller, job, trip, worker

# The metrics of the contract and their labels; `le` apart.
CONTRACT = {
    "gateway_requests": {"endpoint", "model", "tenant", "outcome"},
    "gateway_request_seconds": {"endpoint", "model"},
    "gateway_ttft_seconds": {"model", "bucket"},
    "gateway_inter_token_seconds": {"model"},
    "gateway_overhead_seconds": set(),
    "gateway_queue_depth": {"bucket"},
    "gateway_queue_wait_seconds": {"bucket", "outcome"},
    "gateway_in_flight": {"worker"},
    "gateway_concurrency_limit": {"worker"},
    "gateway_tokens": {"tenant", "model", "direction"},
    "gateway_limited": {"kind"},
    "gateway_worker_up": {"worker"},
    "gateway_worker_failures": {"worker", "kind"},
    "gateway_retries": set(),
    "gateway_store_seconds": set(),
    "gateway_store_degraded": set(),
    "gateway_estimate_error_ratio": set(),
}


class Books:
    """A ledger, its log, and what a scrape of it gives."""

    def __init__(self, workers: Sequence[tuple[Worker, bool]] = (), depth: dict[int, int] | None = None):
        self.clock = Clock()
        self.lines: list[dict[str, Any]] = []
        self.ledger = Ledger(self.clock, self.lines.append)
        self.registry = CollectorRegistry()
        self.registry.register(GatewayCollector(self.ledger, 3, lambda: depth or {}, lambda: workers))

    def samples(self) -> dict[str, dict[tuple[str, ...], float]]:
        """By name, and then by label values in the order of the labels' names; `le` is the last."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(generate_latest(self.registry).decode()):
            for sample in family.samples:
                names = sorted(sample.labels, key=lambda name: (name == "le", name))
                labels = tuple(sample.labels[name] for name in names)
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def one(self, name: str) -> float:
        """The only sample of that name."""
        [value] = self.samples()[name].values()
        return value


def walked(**fields: Any) -> Trip:
    """A trip that ended well after 2 s, its first token after 0.5 s, 0.25 s of it in the queue."""
    whole: dict[str, Any] = {
        "caller": caller(),
        "job": job(bucket=1, prompt_tokens=14),
        "worker": "w1",
        "queue_s": 0.25,
        "sent_at": 1000.375,
        "first_token_at": 1000.5,
        "usage": Usage(7, 2),
        "status": 200,
        "outcome": "ok",
    }
    return trip(**(whole | fields))


def closed(**fields: Any) -> Books:
    books = Books()
    books.clock.now = 1002.0
    books.ledger.close(walked(**fields))
    return books


def test_every_metric_of_the_contract_has_its_name_and_its_labels() -> None:
    books = Books([(worker("w1"), True)])
    books.clock.now = 1002.0
    gaps = books.ledger.gaps()
    gaps.add(0.1)
    books.ledger.close(walked(gaps=gaps))
    books.ledger.queued(1, 0.25, "served")
    books.ledger.store_seconds.at().add(0.001)
    books.ledger.limited["requests",] += 1
    books.ledger.worker_failures["w1", "broke"] += 1
    text = generate_latest(books.registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families.keys() == CONTRACT.keys()
    for name, family in families.items():
        assert family.documentation
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == CONTRACT[name], sample


def test_counters_end_in_total() -> None:
    names = closed().samples().keys()
    assert {"gateway_requests_total", "gateway_tokens_total", "gateway_retries_total"} <= names


def test_a_new_gateway_shows_no_requests_and_all_buckets() -> None:
    samples = Books().samples()
    assert "gateway_requests_total" not in samples
    assert samples["gateway_queue_depth"] == {("0",): 0, ("1",): 0, ("2",): 0}
    assert samples["gateway_retries_total"] == {(): 0}
    assert samples["gateway_store_degraded"] == {(): 0}


def test_a_request_is_counted_by_how_it_ended() -> None:
    books = closed()
    books.ledger.close(walked(outcome="client_gone", endpoint=Endpoint.COMPLETIONS))
    assert books.samples()["gateway_requests_total"] == {
        ("chat", "small", "ok", "acme"): 1,
        ("completions", "small", "client_gone", "acme"): 1,
    }


def test_a_stranger_and_an_unread_request_make_no_series_of_their_own() -> None:
    books = closed(caller=None, job=None, sent_at=None, first_token_at=None, usage=None, outcome="not_json")
    samples = books.samples()
    assert samples["gateway_requests_total"] == {("chat", NONE, "not_json", NONE): 1}
    assert samples["gateway_request_seconds_count"] == {("chat", NONE): 1}
    for name in ("overhead_seconds", "ttft_seconds", "inter_token_seconds", "tokens", "estimate_error_ratio"):
        assert f"gateway_{name}_count" not in samples
    assert "gateway_tokens_total" not in samples


def test_a_trips_times_are_counted_each_in_its_own_histogram() -> None:
    books = closed()
    samples = books.samples()
    assert samples["gateway_request_seconds_sum"] == {("chat", "small"): 2.0}
    assert samples["gateway_ttft_seconds_sum"] == {("1", "small"): 0.5}
    assert samples["gateway_overhead_seconds_sum"] == {(): 0.125}  # without the queue


def test_a_histogram_counts_up_to_infinity() -> None:
    books = closed()
    books.clock.now = 5000.0
    books.ledger.close(walked())
    buckets = {labels[-1]: n for labels, n in books.samples()["gateway_request_seconds_bucket"].items()}
    assert (buckets["1.0"], buckets["2.5"], buckets["600.0"], buckets["+Inf"]) == (0, 1, 1, 2)
    assert list(buckets.values()) == sorted(buckets.values())
    assert books.samples()["gateway_request_seconds_count"] == {("chat", "small"): 2}


def test_the_gaps_of_a_stream_are_added_when_it_ends() -> None:
    books = Books()
    for size in (0.004, 0.25):
        gaps = books.ledger.gaps()
        gaps.add(size)
        books.ledger.close(walked(gaps=gaps))
    samples = books.samples()
    assert samples["gateway_inter_token_seconds_count"] == {("small",): 2}
    assert samples["gateway_inter_token_seconds_sum"] == {("small",): 0.254}
    assert samples["gateway_inter_token_seconds_bucket"][("small", "0.005")] == 1


def test_a_refusal_of_the_worker_is_no_first_token() -> None:
    assert "gateway_ttft_seconds_count" not in closed(outcome="worker_refused", usage=None).samples()


def test_tokens_are_counted_as_the_worker_reports_them() -> None:
    books = closed()
    books.ledger.close(walked(usage=Usage(3, 0), caller=caller(Tenant("globex"))))
    assert books.samples()["gateway_tokens_total"] == {
        ("prompt", "small", "acme"): 7,
        ("completion", "small", "acme"): 2,
        ("prompt", "small", "globex"): 3,
        ("completion", "small", "globex"): 0,
    }


def test_the_estimate_is_held_against_the_real_count() -> None:
    assert closed().one("gateway_estimate_error_ratio_sum") == 2.0


def test_a_prompt_of_no_tokens_says_nothing_of_the_estimate() -> None:
    assert "gateway_estimate_error_ratio_count" not in closed(usage=Usage(0, 2)).samples()


def test_waits_are_counted_by_bucket_and_outcome() -> None:
    books = Books()
    books.ledger.queued(2, 0.5, "served")
    books.ledger.queued(2, 1.0, "served")
    books.ledger.queued(0, 60.0, "client_gone")
    assert books.samples()["gateway_queue_wait_seconds_sum"] == {
        ("0", "client_gone"): 60.0,
        ("2", "served"): 1.5,
    }


def test_what_other_rooms_count_is_shown() -> None:
    books = Books()
    books.ledger.limited["tokens",] += 2
    books.ledger.worker_failures["w1", "timeout"] += 3
    books.ledger.retries += 4
    samples = books.samples()
    assert samples["gateway_limited_total"] == {("tokens",): 2}
    assert samples["gateway_worker_failures_total"] == {("timeout", "w1"): 3}
    assert samples["gateway_retries_total"] == {(): 4}


def test_gauges_show_this_moment() -> None:
    books = Books([(worker("w1", 3, limit=16), True), (worker("w2"), False)], depth={0: 2, 2: 1})
    samples = books.samples()
    assert samples["gateway_queue_depth"] == {("0",): 2, ("1",): 0, ("2",): 1}
    assert samples["gateway_in_flight"] == {("w1",): 3, ("w2",): 0}
    assert samples["gateway_concurrency_limit"] == {("w1",): 16, ("w2",): 4}
    assert samples["gateway_worker_up"] == {("w1",): 1, ("w2",): 0}


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
        "bucket": 1,
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "estimated_prompt_tokens": 14,
        "queue_ms": 250.0,
        "ttft_ms": 500.0,
        "total_ms": 2000.0,
        "detail": "the worker answered 500",
    }


def test_the_log_line_of_a_stranger_leaves_open_what_is_not_known() -> None:
    [line] = closed(
        caller=None, job=None, worker="", queue_s=0.0, sent_at=None, first_token_at=None, usage=None
    ).lines
    known = {name: value for name, value in line.items() if value not in (None, "", 0)}
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
    assert books.one("gateway_requests_total") == 1
