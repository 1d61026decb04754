"""What did each single request use? A file with one JSON line for each, which is only ever added to.

Processes may share it: each adds whole lines, in one write. A program that moves it away finds a new one
begun. Lines that cannot be written wait for better times, up to a bound; a process that is killed loses those
of its last FLUSH_EVERY_S.
"""

import asyncio
import errno
import logging
import os
import stat
from datetime import UTC, datetime

import msgspec

from gateway.model import Trip

log = logging.getLogger(__name__)

FLUSH_EVERY_S = 0.2
MOST_HELD_BYTES = 16 * 1024 * 1024  # of lines that could not be written: some 70,000 requests
NO_MODEL = "none"


class RecordsUnwritable(Exception):
    """The file that the configuration names cannot be opened. The message says what to do."""


class Record(msgspec.Struct, frozen=True):
    """One line."""

    time: datetime  # of the end, in UTC
    request_id: str
    tenant: str
    key: str
    model: str
    endpoint: str
    outcome: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Records:
    """close() it. Raises RecordsUnwritable."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = self._open()
        except OSError as error:
            raise RecordsUnwritable(
                f'usage.records = "{path}": cannot be opened: {error.strerror}. '
                "Name a file in a folder that the gateway may write to, or leave it out"
            ) from None
        self._timer: asyncio.TimerHandle | None = None
        self._lines = bytearray()
        self._encoder = msgspec.json.Encoder()
        self._is_failing = False
        self.dropped = 0  # records that are lost, because MOST_HELD_BYTES were held

    def write(self, trip: Trip) -> None:
        """Note a request that has ended. Its caller is known. Never fails: the log tells what does."""
        if len(self._lines) > MOST_HELD_BYTES:
            self.dropped += 1
            return
        self._encoder.encode_into(_record(trip), self._lines, -1)
        self._lines += b"\n"
        self._flush_later()

    def flush(self) -> None:
        """Write out what waits; it goes on waiting if that fails."""
        if not self._lines:
            return
        try:
            self._follow()
            self._append()
        except OSError as error:
            self._tell(error)
            self._flush_later()
        else:
            self._tell(None)

    def close(self) -> None:
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        if self._lines:
            log.error("usage.records: the last %d records are lost", self._lines.count(b"}\n"))
        os.close(self._file)

    def _flush_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.flush()

    def _open(self) -> int:
        # O_NONBLOCK: where the path is a pipe, nothing may wait for its reader
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o640)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "it is no regular file")
        return file

    def _follow(self) -> None:
        """Begin a new file if the old one was moved away."""
        try:
            is_there = os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            file = self._open()
            os.close(self._file)
            self._file = file

    def _append(self) -> None:
        """The kernel takes the lines into memory and puts them on disk later: the loop can wait for that."""
        while self._lines:
            written = os.write(self._file, self._lines)
            whole = self._lines.rfind(b"\n", 0, written) + 1
            # A line that was cut short, the disk being full, is ended there and written again as a whole.
            self._lines[:whole] = b"\n" if whole < written else b""

    def _tell(self, error: OSError | None) -> None:
        if error and not self._is_failing:
            log.error('usage.records = "%s": cannot be written: %s. Records wait', self._path, error.strerror)
        elif self._is_failing and not error:
            log.warning("usage.records is written again; %d records are lost so far", self.dropped)
        self._is_failing = error is not None


def _record(trip: Trip) -> Record:
    assert trip.caller is not None, "nobody to charge"
    charged = trip.charged
    return Record(
        time=datetime.fromtimestamp(trip.ended_at, UTC),
        request_id=trip.id,
        tenant=trip.caller.tenant.id,
        key=trip.caller.key_id,
        model=trip.job.model if trip.job else NO_MODEL,
        endpoint=trip.endpoint,
        outcome=trip.outcome,
        prompt_tokens=charged.prompt_tokens if charged else 0,
        cached_tokens=charged.cached_tokens if charged else 0,
        completion_tokens=charged.completion_tokens if charged else 0,
    )
