"""What did a connection ask of its transport? A transport that only remembers."""

import asyncio
from collections.abc import Iterable


class FakeTransport(asyncio.Transport):
    """Remembers what a connection asks of its transport."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.writes: list[str] = []
        self.calls: list[str] = []
        self.unsent_bytes = 0
        self.aborted = self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append("write")
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.writes.append("writelines")
        self.written += [bytes(part) for part in list_of_data]

    def abort(self) -> None:
        self.aborted = self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")
