"""What has happened and what is under way, over all processes of a gateway, in Prometheus' terms."""

from gateway.metrics.board import Board
from gateway.metrics.exposition import Metrics
from gateway.metrics.snapshot import Source

__all__ = ["Board", "Metrics", "Source"]
