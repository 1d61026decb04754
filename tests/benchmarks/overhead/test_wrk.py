"""Does wrk get what it is to send, and is what it tells understood?"""

from pathlib import Path

import pytest

from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.requests import PLAIN_TOKENS, STREAM_TOKENS, body
from benchmarks.overhead.wrk import Load, parsed, saturate, script
from tests.benchmarks.overhead.made import serving
from tests.ports import free_ports

TOLD = (
    "Running 1s test\n"
    '{"requests": %d, "micros": 2000000, "p50_us": 500, "p99_us": 1500, "failed": '
    '{"connect": 0, "read": %d, "write": 0, "timeout": 0, "status": %d}}\n'
)


def test_what_it_prints_is_understood() -> None:
    assert parsed(TOLD % (100, 0, 0)) == Load(100, 2.0, 0.5, 1.5)


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (TOLD % (100, 2, 1), "of 100 requests failed: 2 read, 1 status"),
        (TOLD % (0, 0, 0), "no request was answered"),
        ("", "wrk told no figures: out of order"),
    ],
)
def test_what_makes_a_load_worthless_is_told(output: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        parsed(output, "out of order")


def test_the_script_holds_body_and_key_as_they_are() -> None:
    text = script("sk-\"1'", b'{"a":"]]"}')
    assert 'wrk.body = [==[{"a":"]]"}]==]' in text
    assert r'wrk.headers["authorization"] = "Bearer sk-\"1' in text


@pytest.mark.parametrize(("tokens", "stream"), [(PLAIN_TOKENS, False), (STREAM_TOKENS, True)])
def test_the_workers_have_seen_all_that_it_counts(tokens: int, stream: bool, tmp_path: Path) -> None:
    with serving() as worker:
        load = saturate(worker.url, "sk-1", body(tokens, stream=stream), 4, 1, tmp_path)
        counts = worker.counts()

    assert load.requests > 0
    assert load.requests <= counts.requests <= load.requests + 4
    assert (counts.plain == 0) == stream
    assert 0 < load.p50_ms <= load.p99_ms


def test_nobody_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        saturate(f"http://127.0.0.1:{free_ports(1)[0]}", "sk-1", b"{}", 2, 1, tmp_path)
