"""Who was at a worker, what became of it, and until when was it worked for? A worker's own log."""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Visit:
    """A request at a worker. Times are those of `time.time`, as in the gateway's log."""

    worker: str
    request_id: str
    came_at: float
    manner: str
    first_at: float | None = None  # when the first token was sent
    ended_at: float | None = None  # None: the worker died with it
    tokens: int = 0  # made until then
    how: str = ""  # "done": all was said; "left": the gateway hung up; else as its manner

    @property
    def is_done(self) -> bool:
        return self.how == "done"


class VisitLog:
    """Kept by a worker. Each line is out before the worker goes on: a kill loses none."""

    def __init__(self, path: Path, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._worker = worker
        self._visits = 0

    def came(self, request_id: str, manner: str) -> int:
        """Returns the number by which the rest is told."""
        self._visits += 1
        self._write("came", self._visits, request_id=request_id, manner=manner)
        return self._visits

    def first(self, visit: int) -> None:
        self._write("first", visit)

    def ended(self, visit: int, how: str, tokens: int) -> None:
        self._write("ended", visit, how=how, tokens=tokens)

    def _write(self, event: str, visit: int, **more: Any) -> None:
        line = {"at": time.time(), "event": event, "worker": self._worker, "pid": os.getpid(), "visit": visit}
        os.write(self._file, json.dumps(line | more).encode() + b"\n")


def read(lines: Iterable[str]) -> list[Visit]:
    """Of all workers, in the order in which they came."""
    found: dict[tuple[str, int, int], Visit] = {}
    for line in lines:
        told = json.loads(line)
        key = (told["worker"], told["pid"], told["visit"])
        if told["event"] == "came":
            found[key] = Visit(told["worker"], told["request_id"], told["at"], told["manner"])
        elif told["event"] == "first":
            found[key].first_at = told["at"]
        else:
            visit = found[key]
            visit.ended_at, visit.how, visit.tokens = told["at"], told["how"], told["tokens"]
    return sorted(found.values(), key=lambda visit: visit.came_at)
