"""How are the scenarios kept? As one JSON object."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from benchmarks import record
from benchmarks.targets import Row

DISTRIBUTIONS = ("vllm-gateway", "hiredis", "httptools", "openai", "redis", "uvicorn", "uvloop")


def document(
    parameters: Mapping[str, Mapping[str, Any]],
    started_at: datetime,
    redis_server: str,
    rows: Mapping[str, Sequence[Row]],
) -> dict[str, Any]:
    """Everything about a run as JSON values.

    parameters, rows: by scenario. redis_server: its version.
    """
    return {
        "benchmark": "outage",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": dict(parameters),
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS) | {"redis-server": redis_server},
        "commit": record.commit(),
        "rows": [{"scenario": scenario, **row.kept()} for scenario, found in rows.items() for row in found],
    }
