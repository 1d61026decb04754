"""Does the scenario of the SDK meet a limit, and count what it could not sit out?"""

from pathlib import Path

import pytest

from benchmarks.limits.server import running_redis
from benchmarks.outage import sdk
from benchmarks.outage.rig import stand
from benchmarks.outage.sdk import Plan


def test_the_limit_tells_how_long_it_takes() -> None:
    assert Plan(per_minute=10, calls=15).duration_s == 30


async def test_a_call_that_the_sdk_gives_up_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "MODEL", "no-such-model")  # is answered 404, which no retry helps
    with running_redis() as server:
        async with stand(server, tmp_path, 0.0) as at:
            rows = await sdk.measure(at, Plan(per_minute=60, calls=2))
    assert [row.value for row in rows[:2]] == [2, 0]
    assert [(row.name, row.met) for row in rows[:3]] == [
        ("calls that raised", False),
        ("calls that reached the worker", False),
        ("retries of the SDK", False),
    ]
