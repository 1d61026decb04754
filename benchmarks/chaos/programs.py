"""Programs that are killed, stopped and started again while everything else goes on."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.outage.rig import frozen
from deploy.services import Service, ServiceFailed, running

STOP_S = 10.0
POLL_S = 0.02
START_LIMIT_S = 60.0


class Program:
    """One program in its several lives, each with a log of its own. close() it, however it fares."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        """folder: for its logs. environ: besides our own."""
        self.name = name
        self.logs: list[Path] = []
        self._command = command
        self._folder = folder
        self._environ = environ
        self._stack = ExitStack()
        self._service: Service | None = None

    def start(self) -> None:
        self.logs.append(self._folder / f"{self.name.replace(' ', '-')}-{len(self.logs)}.log")
        self._service = self._stack.enter_context(
            running(self.name, self._command, self.logs[-1], STOP_S, self._environ)
        )

    @property
    def service(self) -> Service:
        assert self._service is not None, f"{self.name} does not run"
        return self._service

    @property
    def pid(self) -> int:
        return self.service.process.pid

    def children(self) -> list[int]:
        """The processes that it has forked."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="utf-8")
        return [int(pid) for pid in listed.split()]

    def tell(self, number: signal.Signals) -> None:
        self.service.process.send_signal(number)

    async def end(self, number: signal.Signals, limit_s: float = START_LIMIT_S) -> int:
        """Signal it, and wait until it has ended. Returns its exit status. Raises ServiceFailed."""
        self.tell(number)
        try:
            async with asyncio.timeout(limit_s):
                while (status := self.service.process.poll()) is None:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise ServiceFailed(f"{self.name} did not end within {limit_s:g} s") from error
        self.close()
        return status

    async def freeze(self, for_s: float) -> None:
        """It does nothing for that long."""
        with frozen(self.service.process):
            await asyncio.sleep(for_s)

    def close(self) -> None:
        self._stack.close()
        self._service = None

    def said(self) -> str:
        """In all its lives."""
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in self.logs)
