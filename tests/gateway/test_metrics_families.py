"""Does each metric have what it takes: one entry, a text, and a source?"""

from gateway.metrics.families import COUNTERS, GAUGES, HISTOGRAMS
from tests.gateway.test_metrics_snapshot import ledger_of, source


def test_each_family_is_there_once_and_says_what_it_is() -> None:
    families = [*COUNTERS, *HISTOGRAMS, *GAUGES]
    assert len({family.name for family in families}) == len(families)
    assert all(family.text.endswith(".") or family.text.endswith("ones") for family in families)


def test_a_snapshot_has_all_families_of_each_kind_and_no_other() -> None:
    snapshot = source(ledger_of(1.0)).take()
    assert snapshot.counters.keys() == {family.name for family in COUNTERS}
    assert snapshot.histograms.keys() == {family.name for family in HISTOGRAMS}
    assert snapshot.gauges.keys() == {gauge.name for gauge in GAUGES}
