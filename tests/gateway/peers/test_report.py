"""Is what one process tells read as it was meant, and what nobody told as nothing?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from gateway.peers.report import FORMAT, MOST_BYTES, Report, Waiting, WorkerShare, decode, encode

COUNTS = st.integers(0, 2**40)
NAMES = st.text(max_size=20)
REPORTS = st.builds(
    Report,
    workers=st.dictionaries(NAMES, st.builds(WorkerShare, *[COUNTS] * 5), max_size=5),
    waiting=st.dictionaries(NAMES, st.builds(Waiting, COUNTS, COUNTS), max_size=5),
    served=st.dictionaries(NAMES, st.dictionaries(NAMES, st.floats(0, 2**53), max_size=5), max_size=5),
)
ENDLESS = b"\x95" + msgpack.encode(FORMAT) + b"\x80\x80\x80" + b"\x91" * 100_000


@given(REPORTS)
def test_a_report_is_read_as_it_was_written(report: Report) -> None:
    assert decode(encode(report)) == report


@given(st.binary(max_size=200) | REPORTS.map(encode).flatmap(lambda raw: st.just(raw[: len(raw) // 2])))
def test_whatever_else_comes_is_no_report_or_a_sound_one(raw: bytes) -> None:
    report = decode(raw)
    assert report is None or decode(encode(report)) == report


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        ENDLESS,
        msgpack.encode([FORMAT + 1, {}, {}, {}]),
        msgpack.encode([FORMAT, {"w0": [-1]}, {}, {}]),
        msgpack.encode([FORMAT, {"w0": [2**41]}, {}, {}]),
        msgpack.encode([FORMAT, {}, {"m": [1.5]}, {}]),
        msgpack.encode([FORMAT, {}, {}, {"m": {"acme": float("inf")}}]),
        msgpack.encode([FORMAT, {}, {}, {"m": {"acme": float("nan")}}]),
        msgpack.encode([FORMAT, {"w" * 257: [1]}, {}, {}]),
        b"\x94" + msgpack.encode(FORMAT) + b"\x81\xa1\xff\x91\x01\x80\x80",  # a name that is no UTF-8
    ],
)
def test_what_is_of_another_format_or_makes_no_sense_is_no_report(raw: bytes) -> None:
    assert decode(raw) is None


def test_more_bytes_than_the_bound_are_not_read() -> None:
    empty = len(msgpack.encode([FORMAT, {}, {}, {}, b"x" * 2**16]))
    padding = b"x" * (2**16 + MOST_BYTES - empty)
    most = msgpack.encode([FORMAT, {}, {}, {}, padding])
    assert len(most) == MOST_BYTES
    assert decode(most) == Report()
    assert decode(msgpack.encode([FORMAT, {}, {}, {}, padding + b"x"])) is None


def test_what_a_later_version_adds_at_the_end_is_passed_over() -> None:
    later = msgpack.encode([FORMAT, {"w0": [1, 2, 3, 4, 5, "new"]}, {}, {}, {"new": 1}])
    assert decode(later) == Report(workers={"w0": WorkerShare(1, 2, 3, 4, 5)})


def test_shares_are_added_field_by_field() -> None:
    assert WorkerShare(1, 2, 3, 4, 5) + WorkerShare(10, 20, 30, 40, 50) == WorkerShare(11, 22, 33, 44, 55)


def test_a_process_is_idle_that_has_nothing_at_workers_and_nothing_waiting() -> None:
    assert Report(served={"m": {"acme": 1.0}}).is_idle
    assert not Report(workers={"w0": WorkerShare(1)}).is_idle
    assert not Report(waiting={"m": Waiting(1)}).is_idle
