"""How is the footprint kept? As one JSON object."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from benchmarks import record
from benchmarks.targets import Row

DISTRIBUTIONS = (
    "vllm-gateway",
    "httptools",
    "msgspec",
    "starlette",
    "uvicorn",
    "uvloop",
    "openai",
    "httpx2",
)


def document(parameters: dict[str, Any], started_at: datetime, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything about a run as JSON values."""
    return {
        "benchmark": "footprint",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": parameters,
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS),
        "commit": record.commit(),
        "rows": [row.kept() for row in rows],
    }
