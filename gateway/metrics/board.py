"""What have the processes of one gateway counted, those that died too?

Each process keeps its snapshot in a file, and the one that is asked for metrics adds the files up. It has
the others bring theirs up to date before: a connection to a process's socket asks for that, and an answer
says that it is done. Nothing is told that no file holds, so a sum never falls: who takes the place of a
process that died goes on from that one's file. What a kill -9 can lose is WRITE_EVERY_S of counts.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.metrics.kept import Adder, Kept, Packer, unpack
from gateway.metrics.snapshot import Snapshot, Source

log = logging.getLogger(__name__)

WRITE_EVERY_S = 1.0
ANSWER_S = 1.0  # who takes longer hangs, and its file is taken as it is
DONE = b"."


class Board:
    """`async with` keeps this process's file for as long as the context lasts.

    folder: what the processes share. number: of this process, from 0 and below `count`; whoever comes after
    it, once it has ended, may have the same.
    """

    def __init__(self, source: Source, folder: Path, number: int, count: int) -> None:
        self._source = source
        self._folder = folder
        self._number = number
        self._count = count
        self._packer = Packer()
        self._adder = Adder()
        self._written = b""
        self._can_write = True

    async def __aenter__(self) -> Self:
        if (past := self._read(self._number)) is not None:
            self._source.restore(past.snapshot())
        self._write()
        self._server = await asyncio.start_unix_server(self._answer, self._socket(self._number))
        self._writing = asyncio.create_task(self._write_for_ever(), name="counts")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writing.cancel()
        self._server.close()
        await self._server.wait_closed()
        self._write()

    async def total(self) -> tuple[Snapshot, dict[int, int]]:
        """What all have counted; the gauges, and the pids by number, are of those that run."""
        self._write()
        others = [number for number in range(self._count) if number != self._number]
        runs = await asyncio.gather(*map(self._ask_to_write, others))
        gone = {number for number, is_there in zip(others, runs, strict=True) if not is_there}
        kept = {number: one for number in range(self._count) if (one := self._read(number)) is not None}
        for number in gone & kept.keys():
            kept[number].gauges = {}
        return self._adder.total(kept), {
            number: one.pid for number, one in kept.items() if number not in gone
        }

    async def _ask_to_write(self, number: int) -> bool:
        """Returns whether that process runs."""
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._socket(number))
                with contextlib.closing(writer):
                    return await reader.read() == DONE
        except TimeoutError:
            return True
        except OSError:
            return False

    def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._write()
        writer.write(DONE)
        writer.close()

    async def _write_for_ever(self) -> None:
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            self._write()

    def _write(self) -> None:
        content = self._packer.pack(self._source.take())
        if content == self._written:
            return
        path = self._file(self._number)
        draft = path.with_suffix(".draft")
        try:
            draft.write_bytes(content)
            draft.replace(path)
        except OSError as error:
            if self._can_write:
                log.error("metrics stand still: cannot write %s: %s", path, error.strerror)
            self._can_write = False
        else:
            self._written = content
            self._can_write = True

    def _read(self, number: int) -> Kept | None:
        try:
            return unpack(self._file(number).read_bytes())
        except FileNotFoundError:
            return None

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.counts"

    def _socket(self, number: int) -> Path:
        return self._folder / f"{number}.socket"
