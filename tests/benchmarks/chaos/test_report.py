"""Are counts right, and is each promise kept with what speaks against it?"""

from datetime import UTC, datetime

from benchmarks.chaos.report import MOST_KEPT, RULES, counts, document, judge, rows
from benchmarks.chaos.script import Manner
from tests.benchmarks.chaos.told import call, found, line, mishap, plain, refused, visit

RUN = found(
    calls=[
        call(),
        plain(by="sdk", degraded="local"),
        refused(),
        refused(by="no key", status=401, expected=401),
    ],
    visits=[visit(), visit(how="", tokens=3), visit(how=Manner.BUSY, manner=Manner.BUSY, tokens=0)],
    lines=[line(), line(outcome="draining", tried=2, charged=None)],
    mishaps=[mishap("cut", "w0", 1.0, 1.0), mishap("redis frozen", "redis", 2.0, 3.0)],
    leases=1,
)


def test_everything_is_counted_under_its_name() -> None:
    told = counts(RUN)
    assert told["calls"] == {
        "all": 4,
        "through the SDK": 1,
        "wrong on purpose": 1,
        "streamed": 2,
        "while Redis was away, as told": 1,
    }
    assert told["outcomes"] == {"whole": 2, "draining": 1}
    assert told["of those wrong on purpose"] == {"no key: draining": 1}
    assert told["outcomes in the gateways' log"] == {"ok": 1, "draining": 1}
    assert {kind: count for kind, count in told["faults"].items() if count} == {"cut": 1, "redis frozen": 1}
    workers = told["at workers"]
    assert (workers["requests"], workers["retries"]) == (3, 2)
    assert {how: workers[how] for how in ("done", "killed", "busy")} == {"done": 1, "killed": 1, "busy": 1}


def test_all_rules_are_judged_and_shown_and_broken_ones_kept_with_evidence() -> None:
    findings = judge(RUN)
    assert [finding.rule for finding in findings] == list(RULES)
    kept = document(RUN, findings, datetime(2026, 11, 30, tzinfo=UTC), "7.0.15")
    by_rule = {each["rule"]: each for each in kept["rules"]}
    assert by_rule["all leases are freed"] == {
        "rule": "all leases are freed",
        "violations": 1,
        "evidence": ["1 leases are left in Redis"],
    }
    assert by_rule["no bug shows"]["violations"] == 0
    assert kept["violations"] == sum(each["violations"] for each in kept["rules"]) >= 1
    assert kept["parameters"]["seconds"] == 600
    assert kept["versions"]["redis-server"] == "7.0.15"
    shown = {row.name: (row.value, row.met) for row in rows(RUN, findings)}
    expected = {
        "against: all leases are freed": (1, False),
        "against: no bug shows": (0, True),
        "faults": (2, None),
    }
    assert expected.items() <= shown.items()


def test_no_more_evidence_is_kept_than_anybody_reads() -> None:
    many = found(lines=[line(id=f"c{number}", outcome="internal_error") for number in range(99)])
    [bugs] = [finding.kept() for finding in judge(many) if finding.rule == "no bug shows"]
    assert (bugs["violations"], len(bugs["evidence"])) == (99, MOST_KEPT)
