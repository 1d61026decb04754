"""Which costs make the engine reproduce the measurements? Least squares of the relative errors.

Gauss-Newton: the engine plays every measured load, once more with each coefficient a little larger, and the
normal equations say how to change them. What a step does hardly depends on how long it takes, so the figures
are nearly linear in the coefficients and a few rounds do.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.simulator.costs import Costs
from benchmarks.simulator.measured import ClosedLoop

Vector = list[float]

START = Costs(  # the right order of magnitude is enough
    request_s=1e-3,
    step_s=5e-3,
    prefill_token_s=2e-5,
    attended_token_s=1e-9,
    decode_s=1e-5,
    crowded_decode_s=1e-4,
    kv_token_s=1e-8,
)
ROUNDS = 6
NUDGE = 0.02  # of a coefficient: more than what moves a request into another step by chance
SMALLEST = 0.05  # of its value before: a coefficient shrinks by no more in a round, and stays above zero


def fit(loads: Sequence[ClosedLoop], start: Costs = START, rounds: int = ROUNDS) -> Costs:
    """The best costs of all rounds. Raises ZeroDivisionError where no figure tells of a coefficient."""
    tried = [start]
    for _ in range(rounds):
        tried.append(_better(loads, tried[-1]))
    return min(tried, key=lambda costs: sum(error**2 for error in errors(loads, costs)))


def errors(loads: Sequence[ClosedLoop], costs: Costs) -> Vector:
    """Simulated over measured less 1, of each fitted figure."""
    return list(residuals(loads, costs).values())


def residuals(loads: Sequence[ClosedLoop], costs: Costs) -> dict[str, float]:
    """The same with names."""
    found: dict[str, float] = {}
    for load in loads:
        simulated = load.simulated(costs)
        found |= {f"{load.name}: {name}": simulated[name] / load.measured[name] - 1 for name in load.fitted}
    return found


def document(loads: Sequence[ClosedLoop], costs: Costs) -> str:
    """What is kept of a fit."""
    rounded = {name: float(f"{value:.4g}") for name, value in asdict(costs).items()}
    left = {name: round(error, 3) for name, error in residuals(loads, Costs(**rounded)).items()}
    return json.dumps({"coefficients": rounded, "relative_errors": left}, indent=1) + "\n"


def write(path: Path, loads: Sequence[ClosedLoop], costs: Costs) -> None:
    path.write_text(document(loads, costs), encoding="utf-8")


def _better(loads: Sequence[ClosedLoop], costs: Costs) -> Costs:
    """One round. Coefficients count in their present values, which scales the equations well."""
    now = [getattr(costs, field.name) for field in fields(costs)]
    return Costs(*_step(lambda scales: errors(loads, Costs(*_product(now, scales))), now))


def _step(errors_at: Callable[[Vector], Vector], now: Vector) -> Vector:
    ones = [1.0] * len(now)
    here = errors_at(ones)
    slopes = []
    for index in range(len(now)):
        nudged = [1 + NUDGE * (place == index) for place in range(len(now))]
        slopes.append([(there - was) / NUDGE for there, was in zip(errors_at(nudged), here, strict=True)])
    matrix = [[_dot(row, column) for column in slopes] for row in slopes]
    changes = solved(matrix, [-_dot(row, here) for row in slopes])
    return _product(now, [max(SMALLEST, 1 + change) for change in changes])


def _dot(left: Vector, right: Vector) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _product(left: Vector, right: Vector) -> Vector:
    return [a * b for a, b in zip(left, right, strict=True)]


def solved(matrix: list[Vector], right: Vector) -> Vector:
    """The solution of a symmetric, positive definite system: Gauss-Jordan, which needs no pivots there."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for index, pivot in enumerate(rows):
        rows[index] = pivot = [value / pivot[index] for value in pivot]
        for other, row in enumerate(rows):
            if other != index:
                rows[other] = [a - row[index] * b for a, b in zip(row, pivot, strict=True)]
    return [row[-1] for row in rows]
