"""Does each phase ask what it says, and is a gateway that lost or doubled something found out?"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.overhead import caller, phases
from benchmarks.overhead.contenders import FLOOD, PLAIN, QUARTER, SCALING, STREAM, Contender, Target
from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.phases import RUN, Figures, Plan, Turn, check_seen
from benchmarks.overhead.requests import STREAM_TOKENS
from benchmarks.overhead.stand import Workers, running_workers
from benchmarks.overhead.worker import Counts
from benchmarks.overhead.wrk import Load
from deploy.services import Service

FEW = Contender("few", {PLAIN: 4, STREAM: 5, FLOOD: 6, QUARTER: 3, SCALING: 2}, processes=2)
OURSELVES = cast(Service, SimpleNamespace(process=SimpleNamespace(pid=os.getpid()), check=lambda: None))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with running_workers(tmp_path_factory.mktemp("workers")) as started:
        yield started


@pytest.fixture
def make(workers: Workers, tmp_path: Path) -> Callable[..., Turn]:
    """A turn in which this process is the gateway, and callers go straight to a worker."""

    def turn(before: Mapping[str, Figures] | None = None) -> Turn:
        target = Target(workers.urls[0], "sk-1", OURSELVES)
        return Turn(FEW, target, workers, Plan(seconds=1, flood_tokens=1000), tmp_path, 1, before or {})

    return turn


@pytest.mark.parametrize("phase", [PLAIN, SCALING])
def test_plain_requests_are_counted_on_both_sides(phase: str, make: Callable[..., Turn]) -> None:
    figures = RUN[phase](make())
    assert figures["requests"] <= figures["requests_seen"] <= figures["requests"] + 4
    assert figures["requests_per_s"] > 0
    assert figures["cpu_us"] == pytest.approx(figures["user_us"] + figures["system_us"])


def test_what_processes_would_do_is_what_each_costs(
    make: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "plain", lambda turn, phase: {"cpu_us": 100.0})
    assert phases.scaling(make())["predicted_per_s"] == 20_000
    monkeypatch.setattr(phases, "plain", lambda turn, phase: {"cpu_us": 0.0})
    with pytest.raises(Invalid, match="too small to be measured"):
        phases.scaling(make())


def test_chunks_of_a_stream_are_those_that_workers_sent(make: Callable[..., Turn]) -> None:
    figures = phases.stream(make())
    assert figures["streams"] > 0
    assert figures["chunks"] >= figures["streams"] * STREAM_TOKENS
    assert figures["requests_seen"] <= figures["streams"] + 5
    assert figures["chunks_per_s"] < 5 / phases.INTERVAL_S * 1.5  # five streams at their pace


def test_a_flood_is_taken_to_its_end(make: Callable[..., Turn]) -> None:
    figures = phases.flood(make())
    assert figures["requests_seen"] % 6 == 0  # in waves, until a second is over
    assert figures["chunks"] == figures["requests_seen"] * 1000 > 0
    assert figures["chunks_per_core_s"] == pytest.approx(1e6 / figures["cpu_us"])


def test_a_flood_that_somebody_else_was_in_is_told(
    make: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller, "at_once", lambda *asked: 1.0)
    with pytest.raises(Invalid, match="for 6 streams of 6000 chunks in all the workers have seen 0 requests"):
        phases.flood(make())


def test_a_quarter_is_that_of_what_plain_has_found(make: Callable[..., Turn]) -> None:
    figures = phases.quarter(make({PLAIN: {"requests_per_s": 800.0}}))
    assert figures["rate_per_s"] == 200
    assert 100 < figures["requests_seen"] < 300  # without those that went straight to a worker
    assert figures["added_p99_ms"] == pytest.approx(figures["p99_ms"] - figures["direct_p99_ms"])
    assert figures["added_p50_ms"] == pytest.approx(figures["p50_ms"] - figures["direct_p50_ms"])


def test_nobody_is_asked_faster_than_the_caller_can(
    make: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "MAX_RATE_PER_S", 50.0)
    assert phases.quarter(make({PLAIN: {"requests_per_s": 1e6}}))["rate_per_s"] == 50


def test_streams_that_end_without_the_workers_are_told(
    make: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Counts(requests=10, whole_streams=9, chunks=640)
    spent = SimpleNamespace(seen=seen)
    monkeypatch.setattr(phases, "metered", lambda *asked: (Load(10, 1.0, 1.0, 1.0), spent))
    with pytest.raises(Invalid, match="10 streams ended, but only 9 at the workers"):
        phases.stream(make())


@pytest.mark.parametrize("seen", [10, 13])
def test_requests_that_were_cut_off_may_have_been_seen(seen: int) -> None:
    check_seen(Counts(requests=seen), answered=10, cut_off=3)


@pytest.mark.parametrize("seen", [9, 14])
def test_requests_that_were_made_up_or_doubled_are_told(seen: int) -> None:
    with pytest.raises(Invalid, match=f"10 answers, but the workers have seen {seen} requests"):
        check_seen(Counts(requests=seen), answered=10, cut_off=3)
