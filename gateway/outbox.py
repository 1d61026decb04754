"""Writes of one turn of the event loop, made together at its end."""

import asyncio
from collections.abc import Callable

MOST_BYTES = 65536  # put off; what is more leaves at once, so that backpressure is felt
Write = Callable[[asyncio.WriteTransport, bytes], None]


def write_now(transport: asyncio.WriteTransport, data: bytes) -> None:
    """What an outbox is used instead of."""
    transport.write(data)


class Outbox:
    """Puts writes off until everything else that is ready has run. No timer: a turn is over in microseconds.

    A write wakes the process at the other end, which costs more than the write. Between writes that are
    apart, that process has gone to sleep again; of those made back to back, only the first wakes it.
    """

    def __init__(self) -> None:
        self._writes: list[tuple[asyncio.WriteTransport, bytes]] = []
        self._bytes = 0

    def write(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Write soon, in order. What a transport is told otherwise must wait for `flush`."""
        if not self._writes:
            asyncio.get_running_loop().call_soon(self.flush)
        self._writes.append((transport, data))
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was put off."""
        writes, self._writes = self._writes, []
        self._bytes = 0
        for transport, data in writes:
            if not transport.is_closing():
                transport.write(data)
