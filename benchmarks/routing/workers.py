"""On which workers is it measured? Simulated ones of our own, each a process, or others by their URLs."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.footprint.rig import WITH_US
from deploy.services import Service, running, wait_ready

MODEL = "simulated"
MAX_MODEL_LEN = 32_768
START_LIMIT_S = 60.0
STOP_S = 10.0
PROBE_TIMEOUT_S = 10.0
GENERATED = "vllm:generation_tokens_total"
LATE = "simulator:late_seconds_max"


@dataclass(frozen=True, slots=True)
class Engines:
    """Which workers there are in every run. All arms have the same."""

    count: int = 4
    speed: float = 1.0  # virtual seconds in a real one
    long_prefill_token_threshold: int = 1024  # 0: none, as vLLM's own default
    urls: tuple[str, ...] = ()  # of workers that others started; then the rest does not count
    model: str = MODEL

    @property
    def are_ours(self) -> bool:
        return not self.urls


@dataclass(slots=True)
class Workers:
    """The running ones. Those of others have no processes, and cannot be killed."""

    urls: Sequence[str]
    processes: list["_Process"] = field(default_factory=list)

    def kill(self, index: int) -> None:
        """At once, as a crash would."""
        self.processes[index].stop(kill=True)

    def relaunch(self, index: int) -> None:
        """One that was killed, on the same port, without waiting for it to be ready.

        Call it in the main thread: the kernel ends the program together with the thread that started it.
        """
        self.processes[index].launch()

    def wait_ready(self, index: int) -> None:
        """Raises ServiceFailed."""
        self.processes[index].wait_ready()

    def generated_tokens(self) -> float:
        """Since they were started. One that was killed has forgotten what it did before."""
        return sum(self._each(GENERATED))

    def late_s(self) -> float:
        """How late a token left one of ours at most, in virtual seconds; 0 for those of others."""
        return max(self._each(LATE), default=0.0)

    def _each(self, metric: str) -> list[float]:
        """The samples of a metric, of all workers. Raises httpx.HTTPError."""
        with httpx.Client(trust_env=False, verify=False, timeout=PROBE_TIMEOUT_S) as client:
            texts = [client.get(f"{url}/metrics").raise_for_status().text for url in self.urls]
        return [
            sample.value
            for text in texts
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == metric
        ]

    def check(self) -> None:
        """Raises ServiceFailed if one of ours has ended."""
        for process in self.processes:
            process.service.check()


class _Process:
    """One simulated worker, which can be started again on its port."""

    def __init__(self, name: str, engines: Engines, port: int, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.service: Service
        self._name = name
        self._folder = folder
        self._stack = ExitStack()
        self._starts = 0
        self._command = [*WITH_US, "-m", "benchmarks.simulator", "serve", "--port", str(port)]
        self._command += ["--model", engines.model, "--max-model-len", str(MAX_MODEL_LEN)]
        self._command += ["--long-prefill-token-threshold", str(engines.long_prefill_token_threshold)]
        self._command += ["--speed", str(engines.speed)]

    def launch(self) -> None:
        """Without waiting for it to be ready."""
        self._starts += 1
        log = self._folder / f"{self._name}-{self._starts}.log"
        self.service = self._stack.enter_context(running(self._name, self._command, log, STOP_S))

    def wait_ready(self) -> None:
        wait_ready(f"{self.url}/health", [self.service], START_LIMIT_S)

    def stop(self, kill: bool = False) -> None:
        """Ask it to end, or do not ask."""
        if kill:
            self.service.process.kill()
        self._stack.close()


@contextmanager
def running_workers(engines: Engines, folder: Path) -> Iterator[Workers]:
    """All ready, with empty prefix caches if they are ours; ours end with the block. Raises ServiceFailed."""
    if not engines.are_ours:
        yield Workers(engines.urls)
        return
    with ExitStack() as stack:
        processes = [
            _Process(f"w{number}", engines, port, folder)
            for number, port in enumerate(free_ports(engines.count))
        ]
        for process in processes:
            stack.callback(process.stop)
            process.launch()
        for process in processes:
            process.wait_ready()
        yield Workers([process.url for process in processes], processes)


def free_ports(count: int) -> list[int]:
    """Different ones, on which nobody listens now."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
