"""The log of requests: one JSON line each, written in batches so that no request waits for it."""

import asyncio
import select
import sys
from collections.abc import Iterator
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
        for piece in _pieces(bytes(lines)):
            self._out.write(piece)
            self._out.flush()


def _pieces(lines: bytes) -> Iterator[bytes]:
    """Whole lines that a pipe takes in one: what several processes write to it then never gets mixed."""
    begin = 0
    while begin < len(lines):
        end = lines.rfind(b"\n", begin, begin + select.PIPE_BUF) + 1
        end = end or lines.index(b"\n", begin) + 1  # a line longer than that goes by itself
        yield lines[begin:end]
        begin = end
