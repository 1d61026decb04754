"""Which workers suit this machine?"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.cpu import CpuEnvironment

CPU_FLEET = Path(__file__).with_name("fleet.cpu.toml")
CPU_WORKERS = 2
SIMULATED_WORKERS = 4  # as many as there are cards in the usual case
CPU_FLEET_BYTES = 7_000_000_000  # two workers of 3 GB each, and the gateway beside them


@dataclass(frozen=True)
class Fleet:
    """A fleet file for `workers up`, and what a gateway in front of it has to know."""

    text: str
    model: str
    max_model_len: int
    max_concurrency: int
    """Requests that one worker runs at once: its max_num_seqs."""
    ports: tuple[int, ...]
    """One worker a port, named w0, w1 and so on."""


def gpu_memories_mib() -> list[int]:
    """The memory of each NVIDIA card that `nvidia-smi` lists; empty without cards or driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return [int(line) for line in answer.stdout.split()] if answer.returncode == 0 else []


def cpu_fleet(ports: Sequence[int], environment: CpuEnvironment) -> Fleet:
    """The workers of fleet.cpu.toml, moved to other ports and told where their vLLM and model lie."""
    paths = f'[defaults]\npython = "{environment.python}"\nmodel = "{environment.model}"'
    text = CPU_FLEET.read_text().replace("[defaults]", paths)
    lines = (f"port = {port}" for port in ports)
    text = re.sub(r"^port = \d+$", lambda _: next(lines), text, flags=re.MULTILINE)
    return Fleet(text, model="smollm2", max_model_len=2048, max_concurrency=8, ports=tuple(ports))


def gpu_fleet(memories_mib: Sequence[int], ports: Sequence[int], vllm: Path) -> Fleet:
    """Qwen2.5-7B-Instruct, one worker a card."""
    parts = [
        "[defaults]",
        'model = "Qwen/Qwen2.5-7B-Instruct"',
        'served_name = "qwen2.5-7b"',
        "max_model_len = 32768",
        'tool_call_parser = "hermes"',
        f'vllm = "{vllm}"',
    ]
    for number, (port, memory_mib) in enumerate(zip(ports, memories_mib, strict=True)):
        parts += ["", "[[workers]]", f'id = "w{number}"', f"port = {port}", f"gpus = [{number}]"]
        parts += [f"gpu_memory_gib = {memory_mib / 1024:.1f}"]
    return Fleet(
        "\n".join(parts) + "\n",
        model="qwen2.5-7b",
        max_model_len=32_768,
        max_concurrency=256,
        ports=tuple(ports),
    )


def simulated_fleet(ports: Sequence[int]) -> Fleet:
    """Qwen2.5-7B-Instruct on H200s, as far as time tells; its answers are noise."""
    text = "# Simulated: one process, which needs no file.\n"
    return Fleet(text, model="qwen2.5-7b", max_model_len=32_768, max_concurrency=256, ports=tuple(ports))


def memory_warning(meminfo: Path = Path("/proc/meminfo")) -> str | None:
    """A warning if the two CPU workers will hardly fit into the memory that is free."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    free_bytes = int(match[1]) * 1024 if match else CPU_FLEET_BYTES
    if free_bytes >= CPU_FLEET_BYTES:
        return None
    return (
        f"{free_bytes / 1e9:.1f} GB of memory are free, two workers want {CPU_FLEET_BYTES / 1e9:.0f} GB: "
        "if one is killed while starting, close other programs"
    )
