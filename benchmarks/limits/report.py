"""How are the costs of limits kept? As one JSON object."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from benchmarks import record
from benchmarks.targets import Row

DISTRIBUTIONS = ("vllm-gateway", "hiredis", "msgspec", "redis", "uvloop")


def document(
    parameters: dict[str, Any],
    started_at: datetime,
    redis_server: str,
    rounds: Sequence[Mapping[str, float]],
    rows: Sequence[Row],
) -> dict[str, Any]:
    """Everything about a run as JSON values.

    redis_server: its version. rounds: the figures of each, of which the rows are medians.
    """
    return {
        "benchmark": "limits",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": parameters,
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS) | {"redis-server": redis_server},
        "commit": record.commit(),
        "rounds": [dict(each) for each in rounds],
        "rows": [row.kept() for row in rows],
    }
