"""Which workers run, which have died and must come back, and how do they all stop?

Every worker has one keeper task. The tasks live in one group: a worker that cannot start, or a signal, ends
the group, and each keeper's way out stops its worker. Nothing else holds state.
"""

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import httpx

from workers.guard import Guard
from workers.process import Launch, WorkerProcess, adopting_orphans, log_tail

State = Literal["starting", "healthy", "died", "stopping", "stopped"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the supervisor looks and acts, seconds."""

    health_interval_s: float = 1.0
    health_timeout_s: float = 5.0
    # The first restart comes soon, since a lone crash is likely; a worker that keeps dying is not hammered.
    backoff_first_s: float = 1.0
    backoff_max_s: float = 60.0
    # A worker that was well this long has earned a quick restart again.
    settled_s: float = 300.0
    # vLLM takes about 11 s to end after its last request.
    stop_grace_s: float = 20.0

    def backoff_s(self, deaths: int) -> float:
        """The pause before a restart, after that many deaths in a row."""
        return min(self.backoff_max_s, self.backoff_first_s * 2.0 ** (deaths - 1))


class Display(Protocol):
    """Where the workers' changes are shown."""

    def change(self, worker_id: str, state: State, detail: str = "") -> None:
        """The worker has entered a state."""

    def progress(self, worker_id: str, line: str) -> None:
        """What a starting worker last said in its log."""


class StartFailed(Exception):
    """A worker never became healthy; carries the launch whose log tells why."""

    def __init__(self, launch: Launch, reason: str) -> None:
        super().__init__(f"{launch.id} {reason}")
        self.launch = launch


class _StopRequested(Exception):
    """A signal asked for the end."""


class Supervisor:
    """Runs a fleet until a signal comes. One object serves one run."""

    def __init__(self, launches: Sequence[Launch], display: Display, pace: Pace | None = None) -> None:
        self._launches = launches
        self._display = display
        self._pace = pace or Pace()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Returns once a signal has been obeyed and no process is left.

        Raises StartFailed, with all workers stopped, if one does not become healthy the first time. One that
        dies later is restarted for as long as it takes.
        """
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            with adopting_orphans(), Guard() as guard:
                async with httpx.AsyncClient(trust_env=False, timeout=self._pace.health_timeout_s) as client:
                    await self._keep_all(client, guard)
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Asks for an orderly stop; asked again, kills what is still running."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _keep_all(self, client: httpx.AsyncClient, guard: Guard) -> None:
        failures: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                for launch in self._launches:
                    keeper = Keeper(launch, client, guard, self._display, self._pace, self._hurry)
                    tasks.create_task(keeper.keep())
                tasks.create_task(self._end_on_request())
        except* _StopRequested:
            pass
        except* StartFailed as failed:
            failures += failed.exceptions
        if failures:
            raise failures[0]

    async def _end_on_request(self) -> None:
        await self._stop.wait()
        raise _StopRequested


@dataclass(frozen=True, slots=True)
class _Life:
    """How one life of a worker ended, and for how long it was healthy (None: never)."""

    end: str
    healthy_s: float | None = None


class Keeper:
    """Keeps one worker running."""

    def __init__(
        self,
        launch: Launch,
        client: httpx.AsyncClient,
        guard: Guard,
        display: Display,
        pace: Pace,
        hurry: asyncio.Event,
    ) -> None:
        self._launch = launch
        self._client = client
        self._guard = guard
        self._display = display
        self._pace = pace
        self._hurry = hurry

    async def keep(self) -> None:
        """Starts the worker and restarts it whenever it dies; ends only by cancellation or StartFailed."""
        try:
            await self._restart_for_ever()
        finally:
            self._say("stopped")

    async def _restart_for_ever(self) -> None:
        been_healthy = False
        deaths = 0
        while True:
            life = await self._live()
            if life.healthy_s is None and not been_healthy:
                self._say("died", life.end)
                raise StartFailed(self._launch, life.end)
            been_healthy = True
            settled = life.healthy_s is not None and life.healthy_s >= self._pace.settled_s
            deaths = 1 if settled else deaths + 1
            pause_s = self._pace.backoff_s(deaths)
            self._say("died", f"{life.end}; starting again in {pause_s:g} s")
            await asyncio.sleep(pause_s)

    async def _live(self) -> _Life:
        """One life of the worker, from start to death. Leaves no process behind, cancelled or not."""
        self._say("starting", f"log {self._launch.log}")
        try:
            process = await WorkerProcess.start(self._launch, self._guard)
        except OSError as error:
            return _Life(f"could not be started: {error}")
        try:
            return await self._watch(process)
        except asyncio.CancelledError:
            self._say("stopping")
            process.terminate()
            limit_s = self._launch.shutdown_timeout_s + self._pace.stop_grace_s
            await _first(limit_s, process.wait(), self._hurry.wait())
            raise
        finally:
            await process.clear()

    async def _watch(self, process: WorkerProcess) -> _Life:
        """Sees the worker become healthy and die."""
        loop = asyncio.get_running_loop()
        first = await _first(self._launch.start_limit_s, process.wait(), self._until_healthy())
        if first is None:
            return _Life(f"was not healthy within {self._launch.start_limit_s:g} s")
        if first == 0:
            return _Life(_ending(await process.wait()))
        self._say("healthy", self._launch.url)
        healthy_since = loop.time()
        return _Life(_ending(await process.wait()), loop.time() - healthy_since)

    async def _until_healthy(self) -> None:
        # vLLM tells nobody when it is ready, so it has to be asked; until then it refuses connections.
        while not await self._is_healthy():
            for line in log_tail(self._launch.log, 1):
                self._display.progress(self._launch.id, line)
            await asyncio.sleep(self._pace.health_interval_s)

    async def _is_healthy(self) -> bool:
        try:
            answer = await self._client.get(self._launch.health_url)
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK

    def _say(self, state: State, detail: str = "") -> None:
        self._display.change(self._launch.id, state, detail)


async def _first(limit_s: float, *contestants: Coroutine[object, object, object]) -> int | None:
    """The index of the one that ends first, None if none does in time; the others are cancelled."""
    tasks = [asyncio.create_task(contestant) for contestant in contestants]
    try:
        done, _ = await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for index, task in enumerate(tasks):
        if task in done:
            task.result()
            return index
    return None


def _ending(status: int) -> str:
    if status < 0:
        return f"was killed by signal {-status} ({signal.strsignal(-status)})"
    return f"exited with status {status}"
