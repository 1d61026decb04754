"""What has each tenant used? The room that counts it, keeps it and tells it."""

from gateway.usage.memory import MemoryUsage
from gateway.usage.meter import Meter, UsageStore
from gateway.usage.records import Records, RecordsUnwritable
from gateway.usage.report import Report, dimensions
from gateway.usage.rows import UsageRow, rows_of

__all__ = [
    "MemoryUsage",
    "Meter",
    "Records",
    "RecordsUnwritable",
    "Report",
    "UsageRow",
    "UsageStore",
    "dimensions",
    "rows_of",
]
