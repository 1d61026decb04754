"""Are the numbers told to Prometheus as agreed?"""

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gateway.accounting import Ledger
from gateway.metrics import Board, Metrics, Source
from gateway.metrics.exposition import PREFIX
from tests.gateway.test_metrics_snapshot import ledger_of, source
from tests.gateway.test_model import Clock, trip, worker

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
Samples = dict[str, dict[tuple[str, ...], float]]


def samples(text: bytes) -> Samples:
    """By name, and then by label values in the order of the labels' names; `le` is the last."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            names = sorted(sample.labels, key=lambda name: (name == "le", name))
            labels = tuple(sample.labels[name] for name in names)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def shown(of: Source) -> Samples:
    return samples(await Metrics(of).text())


async def test_every_metric_of_the_contract_has_its_name_and_its_labels() -> None:
    text = await Metrics(source(ledger_of(1.0), ((worker("w1"), True),))).text()
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    ours = {name for name in families if name.startswith("gateway_")}
    assert ours == CONTRACT.keys()
    for name in ours:
        assert families[name].documentation
        for sample in families[name].samples:
            assert sample.labels.keys() - {"le"} == CONTRACT[name], sample


async def test_counters_end_in_total() -> None:
    found = await shown(source(ledger_of(1.0)))
    assert found["gateway_requests_total"] == {("chat", "small", "ok", "acme"): 1}
    assert found["gateway_retries_total"] == {(): 1}


async def test_a_new_gateway_shows_no_requests_and_all_buckets() -> None:
    found = await shown(source())
    assert "gateway_requests_total" not in found
    assert found["gateway_queue_depth"] == {("0",): 0, ("1",): 0}
    assert found["gateway_retries_total"] == {(): 0}
    assert found["gateway_store_degraded"] == {(): 0}


async def test_a_histogram_counts_up_to_infinity() -> None:
    found = await shown(source(ledger_of(2.0, 4000.0)))
    buckets = {labels[-1]: count for labels, count in found["gateway_request_seconds_bucket"].items()}
    assert (buckets["1.0"], buckets["2.5"], buckets["600.0"], buckets["+Inf"]) == (0, 1, 1, 2)
    assert list(buckets.values()) == sorted(buckets.values())
    assert found["gateway_request_seconds_count"] == {("chat", "small"): 2}
    assert found["gateway_request_seconds_sum"] == {("chat", "small"): 4002.0}


async def test_gauges_show_this_moment() -> None:
    found = await shown(source(workers=((worker("w1", 3, limit=16), True), (worker("w2"), False))))
    assert found["gateway_in_flight"] == {("w1",): 3, ("w2",): 0}
    assert found["gateway_worker_up"] == {("w1",): 1, ("w2",): 0}


async def test_labels_of_any_text_come_out_as_they_went_in() -> None:
    odd = 'back\\slash "quoted"\nand a second line'
    ledger = ledger_of(1.0)
    ledger.limited[odd,] += 3
    ledger.store_seconds[()].add(0.5)
    ledger.inter_token[odd,].add(0.5)
    found = await shown(source(ledger, ((worker(odd, 2), True),)))
    assert found["gateway_limited_total"][odd,] == 3
    assert found["gateway_inter_token_seconds_count"][odd,] == 1
    assert found["gateway_in_flight"] == {(odd,): 2}


async def test_it_is_told_as_by_the_official_client() -> None:
    """Line by line, but for the form of numbers."""
    ours = (await Metrics(source(ledger_of(2.0, 4000.0), ((worker("w1", 3), True),))).text()).decode()
    families = [family for family in text_string_to_metric_families(ours) if family.name.startswith(PREFIX)]
    registry = CollectorRegistry()
    registry.register(Told(families))
    theirs = generate_latest(registry).decode().splitlines()
    assert [plain(line) for line in ours.splitlines() if PREFIX in line] == [plain(line) for line in theirs]


class Told(Collector):
    """Metrics for the official client to write down."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def plain(line: str) -> str:
    name, _, value = line.rpartition(" ")
    return line if line.startswith("#") else f"{name} {float(value)}"


async def test_a_scrape_tells_of_what_has_come_since_the_last_one() -> None:
    ledger = Ledger(Clock(), lambda line: None)
    metrics = Metrics(source(ledger))
    for requests in (1, 2):
        ledger.close(trip(outcome="ok"))
        found = samples(await metrics.text())
        assert sum(found["gateway_requests_total"].values()) == requests
    ledger.close(trip(outcome="client_gone"))
    found = samples(await metrics.text())
    assert sorted(found["gateway_requests_total"].values()) == [1, 2]


async def test_the_only_process_is_told_of_without_a_label() -> None:
    found = await shown(source())
    assert list(found["process_resident_memory_bytes"]) == [()]


async def test_several_processes_are_told_of_as_one_and_each_by_its_number(tmp_path: Path) -> None:
    ledger = Ledger(Clock(), lambda line: None)
    here, there = source(ledger), source(ledger_of(1.0, 2.0))
    async with Board(here, tmp_path, 0, 2) as board, Board(there, tmp_path, 1, 2):
        ledger.close(trip(outcome="ok"))
        found = samples(await Metrics(here, board).text())
    assert sum(found["gateway_requests_total"].values()) == 3
    memory = found["process_resident_memory_bytes"]
    assert memory.keys() == {("0",), ("1",)}
    assert memory["0",] == memory["1",] > 0  # here, both are this one
    assert found["process_cpu_seconds_total"].keys() == {("0",), ("1",)}


async def test_a_process_that_has_ended_is_counted_but_shown_no_more(tmp_path: Path) -> None:
    here, there = source(), source(ledger_of(1.0), ((worker("w0", 3), True),))
    async with Board(here, tmp_path, 0, 2) as board:
        async with Board(there, tmp_path, 1, 2):
            found = samples(await Metrics(here, board).text())
            assert found["gateway_in_flight"] == {("w0",): 3}
        found = samples(await Metrics(here, board).text())
    assert sum(found["gateway_requests_total"].values()) == 1
    assert "gateway_in_flight" not in found
    assert found["process_open_fds"].keys() == {("0",)}
