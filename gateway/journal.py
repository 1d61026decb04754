"""The log of requests: one JSON line each, written in batches so that no request waits for it."""

import asyncio
import sys
from typing import BinaryIO

import msgspec

FLUSH_EVERY_S = 0.2


class Journal:
    """Writes to standard output unless told otherwise. What a kill -9 can lose is FLUSH_EVERY_S of lines."""

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = out or sys.stdout.buffer
        self._records: list[dict[str, object]] = []
        self._encoder = msgspec.json.Encoder()

    def write(self, record: dict[str, object]) -> None:
        if not self._records:
            asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self.flush)
        self._records.append(record)

    def flush(self) -> None:
        records, self._records = self._records, []
        if records:
            self._out.write(self._encoder.encode_lines(records))
            self._out.flush()
