"""Does the fit find costs from figures alone, and is the kept one what it finds?"""

import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.simulator import fit
from benchmarks.simulator.costs import H200, Costs
from benchmarks.simulator.measured import ClosedLoop, Measurements, medians

TRUTH = Costs(1e-4, 4e-3, 3e-5, 5e-10, 2e-5, 5e-5, 2e-8)
FITTED = ("out_tok_s", "ttft_p99", "tpot_p50_ms")


def load(streams: int, prompt_tokens: int, output_tokens: int) -> ClosedLoop:
    """As it would have been measured if the engine cost TRUTH."""
    sizes = (streams, streams, prompt_tokens, output_tokens)
    unmeasured = ClosedLoop("x", *sizes, FITTED, {})
    return ClosedLoop(f"{sizes}", *sizes, FITTED, unmeasured.simulated(TRUTH))


def test_costs_are_found_from_the_figures_they_lead_to() -> None:
    sizes = ((1, 64, 9), (1, 30000, 9), (60, 32, 64), (180, 32, 128), (8, 4000, 64))
    loads = [load(*size) for size in sizes]
    off = (1.3, 0.8, 1.2, 0.8, 1.2, 0.8, 1.2)
    start = Costs(*(value * factor for value, factor in zip(asdict(TRUTH).values(), off, strict=True)))

    found = fit.fit(loads, start, rounds=3)

    assert asdict(found) == pytest.approx(asdict(TRUTH), rel=0.02)


def test_a_round_that_made_it_worse_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = [load(1, 512, 20)]
    worse = replace(TRUTH, step_s=1.0)
    monkeypatch.setattr(fit, "_better", lambda loads, costs: worse)

    assert fit.fit(loads, start=TRUTH, rounds=2) is TRUTH


def test_a_coefficient_stays_above_zero() -> None:
    now = [1.0, 2.0]

    changed = fit._step(lambda scales: [10 * scales[0], scales[1] - 1], now)

    assert changed == [pytest.approx(fit.SMALLEST), pytest.approx(2.0)]


def test_equations_are_solved() -> None:
    drawn = random.Random(3)
    rows = [[drawn.uniform(-1, 1) for _ in range(5)] for _ in range(9)]
    matrix = [[sum(row[a] * row[b] for row in rows) for b in range(5)] for a in range(5)]
    solution = [1.0, -2.0, 3.0, 0.5, 0.0]
    right = [sum(a * b for a, b in zip(row, solution, strict=True)) for row in matrix]

    assert fit.solved(matrix, right) == pytest.approx(solution)


def test_what_is_kept_can_be_loaded_and_tells_what_is_left(tmp_path: Path) -> None:
    loads = [load(1, 512, 20)]
    file = tmp_path / "fit.json"

    fit.write(file, loads, replace(TRUTH, step_s=4.4e-3))

    assert Costs.load(file) == replace(TRUTH, step_s=4.4e-3)
    left = json.loads(file.read_text(encoding="utf-8"))["relative_errors"]
    assert list(left) == [f"(1, 1, 512, 20): {figure}" for figure in FITTED]
    assert left["(1, 1, 512, 20): tpot_p50_ms"] == pytest.approx(0.1, abs=0.01)


def test_the_kept_errors_are_those_of_the_kept_costs() -> None:
    loads = Measurements.load().closed_loop

    assert fit.document(loads, Costs.load()) == H200.read_text(encoding="utf-8")


def test_figures_that_say_nothing_of_a_coefficient_are_not_enough() -> None:
    with pytest.raises(ZeroDivisionError):
        fit.fit([load(1, 512, 20)])


def test_medians_are_taken_figure_by_figure() -> None:
    runs = [{"a": 1.0, "b": 9.0}, {"a": 5.0, "b": 8.0}, {"a": 3.0, "b": 7.0}]

    assert medians(runs) == {"a": 3.0, "b": 8.0}
