"""Runs and answers as tests want them."""

from typing import Any

from benchmarks.routing.caller import Answer, Outcome
from benchmarks.routing.loads import ONE_TENANT, Call
from benchmarks.routing.results import QUANTILES, Run


def answer(
    at_s: float,
    ttft_s: float | None = 0.1,
    outcome: Outcome = "ok",
    worker: str = "w1",
    size: str = "short",
    tenant: str = ONE_TENANT,
) -> Answer:
    """One of a call that asked for two tokens and got both, unless it ended otherwise."""
    call = Call(at_s, tenant, size, prompt_tokens=100, output_tokens=2)
    ended_s = at_s + (ttft_s or 0.0) + 0.01
    return Answer(call, outcome, worker, at_s, ttft_s, ended_s, 2 if outcome == "ok" else 0, 0)


def run(scenario: str, load: str, arm: str, seed: int = 1, usable: bool = True, **figures: Any) -> Run:
    """One with these figures; those of sizes are named as short_ttft_p99_s."""
    sizes: dict[str, dict[str, Any]] = {"short": {}, "long": {}, "all": {}}
    for name in list(figures):
        size, _, figure = name.partition("_")
        if size in sizes:
            sizes[size][figure] = figures.pop(name)
    waits = [0.001 * (step + 1) for step in range(QUANTILES + 1)]
    return Run(
        scenario,
        load,
        arm,
        seed,
        workers_late_s=0.01,
        client_late_s=0.002,
        usable=usable,
        figures={"sizes": sizes, **figures},
        ttft_s={"short": waits, "long": [10 * wait for wait in waits]},
    )
