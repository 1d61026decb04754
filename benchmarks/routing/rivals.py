"""Which other routers is the gateway measured against, and how are they installed and started?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import environments


@dataclass(frozen=True, slots=True)
class Rival:
    """A router on the package index. All that is not named here keeps its authors' default."""

    package: str
    version: str
    program: str
    arguments: tuple[str, ...]  # that come first
    quiet: str  # its word for the log level of warnings
    ready: str  # path that answers 200 when it can route
    policies: tuple[str, ...]

    def command(self, program: Path, policy: str, ports: Sequence[int], workers: Sequence[str]) -> list[str]:
        """ports: of requests and of metrics. workers: their URLs."""
        port, metrics_port = ports
        return [
            *(str(program), *self.arguments, "--host", "127.0.0.1", "--port", str(port)),
            *("--prometheus-port", str(metrics_port), "--policy", policy, "--log-level", self.quiet),
            *("--worker-urls", *workers),
        ]


RIVALS = {
    "vllm-router": Rival(
        package="vllm-router",
        version="0.1.17",
        program="vllm-router",
        arguments=(),
        quiet="warning",
        ready="/health",
        policies=("round_robin", "power_of_two", "cache_aware"),
    ),
    "sglang-router": Rival(
        package="sglang-router",
        version="0.3.2",
        program="smg",
        arguments=("launch",),
        quiet="warn",
        ready="/readiness",
        policies=("cache_aware",),
    ),
}


def installed(rival: Rival, cache: Path | None = None) -> Path:
    """Its program, in an environment of its own, which is made if it is missing. Raises ServiceFailed.

    cache: where environments lie; left out, in the user's cache folder.
    """
    return environments.installed(rival.package, rival.version, rival.program, cache)
