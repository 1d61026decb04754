"""Is a file all that a process has counted, and are many added up as they should, time and again?"""

from gateway.accounting import Ledger
from gateway.metrics.kept import Adder, Packer, unpack
from gateway.metrics.snapshot import Source
from tests.gateway.test_metrics_snapshot import ledger_of, plain, source
from tests.gateway.test_model import Clock, trip, worker


class Process:
    """One that counts, and keeps it in a file."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger(Clock(), lambda line: None)
        self.source: Source = source(self.ledger, ((worker("w0", 1), True),))
        self.packer = Packer()

    def file(self) -> bytes:
        return self.packer.pack(self.source.take())

    def count(self, *outcomes: str) -> None:
        for outcome in outcomes:
            self.ledger.close(trip(outcome=outcome))


def requests(adder: Adder, *processes: Process) -> dict[str, int]:
    """How many of each outcome all have counted together."""
    total = adder.total({number: unpack(process.file()) for number, process in enumerate(processes)})
    return {labels[-1]: count for labels, count in total.counters["requests"].items()}


def test_a_file_is_the_whole_snapshot() -> None:
    process = Process(ledger_of(1.0, 2.0))
    assert plain(unpack(process.file()).snapshot()) == plain(process.source.take())


def test_a_file_has_labels_that_came_after_the_one_before() -> None:
    process = Process()
    for outcomes in (["ok"], ["ok", "client_gone"], [], ["draining"]):
        process.count(*outcomes)
        assert plain(unpack(process.file()).snapshot()) == plain(process.source.take())


def test_what_has_not_changed_is_the_same_file() -> None:
    process = Process(ledger_of(1.0))
    assert process.file() == process.file()


def test_the_same_series_add_up_wherever_each_process_has_them() -> None:
    one, other, adder = Process(), Process(), Adder()
    one.count("ok", "client_gone", "client_gone")
    other.count("draining", "client_gone", "ok")
    assert requests(adder, one, other) == {"ok": 2, "client_gone": 3, "draining": 1}


def test_sums_follow_series_that_come_later_in_any_process() -> None:
    one, other, adder = Process(), Process(), Adder()
    one.count("ok")
    assert requests(adder, one, other) == {"ok": 1}
    other.count("client_gone", "ok")
    assert requests(adder, one, other) == {"ok": 2, "client_gone": 1}
    one.count("draining", "client_gone")
    assert requests(adder, one, other) == {"ok": 2, "client_gone": 2, "draining": 1}
    assert requests(adder, one, other) == {"ok": 2, "client_gone": 2, "draining": 1}


def test_histograms_and_gauges_add_up_too() -> None:
    files = {
        number: unpack(Process(ledger_of(*seconds)).file())
        for number, seconds in enumerate(((1.0,), (2.0, 4.0)))
    }
    files[1].gauges = {}  # it runs no more
    total = Adder().total(files)
    [tally] = total.histograms["request_seconds"].values()
    assert (sum(tally.counts), tally.total) == (3, 7.0)
    assert total.gauges["in_flight"] == {("w0",): 1}
    assert total.counters["retries"] == {(): 2}


def test_of_no_process_there_is_nothing() -> None:
    total = Adder().total({})
    assert (total.counters, total.histograms, total.gauges) == ({}, {}, {})
