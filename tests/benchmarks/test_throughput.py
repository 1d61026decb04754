"""Are both ways to a worker measured alike, and held to their targets?"""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.routing import arms
from benchmarks.throughput import __main__ as command
from benchmarks.throughput.measurements import DIRECT, GATEWAY, OPEN, Plan, Round, output_tokens, rows

QUICK = ["--streams", "4", "--output-tokens", "20", "--seconds", "2", "--rounds", "1", "--alone", "2"]


def test_a_ratio_is_taken_within_a_round_and_the_median_of_all() -> None:
    rounds = [
        Round(
            {DIRECT: {8: direct}, GATEWAY: {8: gateway}, OPEN: {8: direct / 2}},
            {DIRECT: {8: 0.010}, GATEWAY: {8: 0.010 + added_s}, OPEN: {8: 0.030}},
            {DIRECT: 0.010, GATEWAY: 0.010 + added_s},
        )
        for direct, gateway, added_s in ((100.0, 120.0, 0.001), (200.0, 250.0, 0.003), (50.0, 50.0, 0.002))
    ]
    found = {row.name: row for row in rows(rounds)}
    assert found["8 streams: output tokens, through the gateway / straight"].value == pytest.approx(1.2)
    assert found["8 streams: output tokens, through the gateway / straight"].met
    assert found["8 streams: time per output token, through the gateway / straight"].value == pytest.approx(
        1.2
    )
    assert found["8 streams: time per output token, through the gateway / straight"].met is False
    assert found["TTFT that the gateway adds for a caller alone"].value == pytest.approx(2.0)
    assert found["8 streams: output tokens/s, straight"].value == 100.0
    assert found["8 streams: output tokens, none waits / straight"].value == pytest.approx(0.5)
    assert found["8 streams: time per output token, none waits / straight"].value == pytest.approx(3.0)


def test_answers_differ_in_length_and_are_as_long_as_asked_on_average() -> None:
    plan = Plan((8,), 512, 100, 0.5, 1.0, 1, 1)
    first = list(islice(output_tokens(plan), 50))
    assert first == list(islice(output_tokens(plan), 50))
    assert sum(first) / 50 == pytest.approx(100, rel=0.05)
    assert 50 <= min(first) < 60
    assert 140 < max(first) <= 150
    assert set(islice(output_tokens(replace(plan, spread=0.0)), 50)) == {100}


def test_a_crowd_of_streams_should_win_tokens() -> None:
    both = {DIRECT: {64: 100.0, 256: 100.0}, GATEWAY: {64: 99.5, 256: 99.5}, OPEN: {64: 1.0, 256: 1.0}}
    found = {row.name: row for row in rows([Round(both, both, {DIRECT: 0.010, GATEWAY: 0.010})])}
    assert found["64 streams: output tokens, through the gateway / straight"].met
    assert found["256 streams: output tokens, through the gateway / straight"].met is False


def test_a_simulated_worker_is_measured_both_ways(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    ended = CliRunner().invoke(command.main, [*QUICK, "--json", str(kept)])
    assert ended.exit_code in (0, 1), ended.output
    document = json.loads(kept.read_text())
    [measured] = document["rounds"]
    assert set(measured["tokens_per_s"]) == set(measured["ttft_s"]) == {DIRECT, GATEWAY, OPEN}
    assert all(
        measured[what][way]["4"] > 0 for what in ("tokens_per_s", "tpot_s") for way in (DIRECT, GATEWAY)
    )
    assert document["parameters"]["worker"] == "simulated"


def test_a_worker_that_is_not_there_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "START_LIMIT_S", 1.0)
    ended = CliRunner().invoke(command.main, [*QUICK, "--worker", "http://127.0.0.1:9/"])
    assert ended.exit_code == 2
    assert "Error" in ended.output
