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
        self._lines = bytearray()
        self._encoder = msgspec.json.Encoder()

    def write(self, record: dict[str, object]) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self.flush)
        self._encoder.encode_into(record, self._lines, -1)
        self._lines += b"\n"

    def flush(self) -> None:
        lines, self._lines = self._lines, bytearray()
        if lines:
            self._out.write(lines)
            self._out.flush()
