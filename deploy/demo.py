"""What does a newcomer run first? `python3 deploy/demo.py`: the gateway, real workers and a question.

Needs Python 3.11 or newer; everything else is installed into the checkout's `.venv` and the user's cache.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python runs into
    sys.exit("This needs Python 3.11 or newer. Install one and call it by name: python3.12 deploy/demo.py")

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of deploy/, so that the checkout can be imported before it is installed

from deploy import bootstrap, fleets, services  # noqa: E402
from workers.cpu import CannotInstall, CommandFailed, Steps, default_cache, install  # noqa: E402

QUESTION = "What is the capital of France?"
WORKERS_LIMIT_S = 900.0  # a GPU worker may have to download 15 GB first; one without takes a minute or two
GATEWAY_LIMIT_S = 60.0
GATEWAY_STOP_S = 15.0
WORKERS_STOP_S = 60.0


class Refused(Exception):
    """An option or the machine stands in the way; the message says what to do."""


@dataclass(frozen=True)
class Options:
    """The command line."""

    smoke: bool
    cpu: bool
    simulate: bool
    port: int
    worker_port: int
    cache: Path
    model: Path | None


def main(argv: Sequence[str] | None = None) -> int:
    """Set up, start, ask, and stay; returns the exit status."""
    options = _parse(argv)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # however we are stopped, the programs stop too
    try:
        _set_up_and_run(options)
    except KeyboardInterrupt:
        print("\nStopped; nothing is left running.")
        return 130
    except (Refused, CannotInstall, CommandFailed, services.ServiceFailed) as problem:
        print(f"\nThat did not work: {problem}", file=sys.stderr)
        return 1
    return 0


def _parse(argv: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python3 deploy/demo.py",
        description="Start real vLLM workers and the gateway on this machine, ask a question through the "
        "openai SDK and stay until Ctrl-C. Without NVIDIA GPUs two workers run SmolLM2-135M on the CPU; with "
        "them Qwen2.5-7B-Instruct runs, one worker a card. The first run installs what is missing.",
    )
    add = parser.add_argument
    add("--smoke", action="store_true", help="end after the answer, with status 0 if there was one")
    add("--cpu", action="store_true", help="use CPU workers even if there are GPUs")
    add("--simulate", action="store_true", help="simulated GPU workers: no model, no sense, up in seconds")
    add("--port", type=int, default=8080, help="the gateway's port (8080); its metrics get the next one")
    add("--worker-port", type=int, default=8101, help="the first worker's port (8101); the others follow it")
    add("--cache", type=Path, default=default_cache(), help="where CPU workers are installed (%(default)s)")
    add("--model", type=Path, help="a model directory for the CPU workers, instead of SmolLM2's")
    return Options(**vars(parser.parse_args(argv)))


def _set_up_and_run(options: Options) -> None:
    cards = [] if options.cpu or options.simulate else fleets.gpu_memories_mib()
    count = fleets.SIMULATED_WORKERS if options.simulate else len(cards) or fleets.CPU_WORKERS
    ports = range(options.worker_port, options.worker_port + count)
    _refuse_taken(options.port, ports)
    steps = Steps()
    with steps.step("Python environment in .venv") as detail:
        python = bootstrap.ensure_environment("bench,gpu" if cards else "bench", detail)
    if options.simulate:
        fleet = fleets.simulated_fleet(ports)
    elif cards:
        fleet = fleets.gpu_fleet(cards, ports, python.with_name("vllm"))
    else:
        fleet = fleets.cpu_fleet(ports, install(options.cache, options.model, steps))
        if warning := fleets.memory_warning():
            print(f"    {warning}")
    place = options.cache / f"demo-{options.port}"
    stack = ExitStack()
    try:
        _start_and_ask(Demo(options, fleet, python, place, steps, stack))
    finally:
        with steps.step("Stopping"):
            stack.close()


def _refuse_taken(port: int, worker_ports: Iterable[int]) -> None:
    options = {port: "--port", port + 1: "--port"} | dict.fromkeys(worker_ports, "--worker-port")
    taken = [number for number in options if not services.port_is_free(number)]
    if taken:
        hints = ", ".join(f"{number} (choose another with {options[number]})" for number in taken)
        raise Refused(f"another program listens on port {hints}")


@dataclass(frozen=True)
class Demo:
    """Everything that starting and asking needs."""

    options: Options
    fleet: fleets.Fleet
    python: Path
    place: Path
    steps: Steps
    stack: ExitStack

    def start(self, name: str, *arguments: str | Path, stop_s: float) -> services.Service:
        """Run one of the project's commands until the stack closes."""
        argv = [self.python.with_name(name), *arguments]
        return self.stack.enter_context(services.running(name, argv, self.place / f"{name}.log", stop_s))

    def start_workers(self) -> services.Service:
        """The fleet: by `workers up`, or one process that simulates it."""
        fleet_file = self.place / "fleet.toml"
        fleet_file.write_text(self.fleet.text)
        if not self.options.simulate:
            return self.start(
                "workers", "up", "--fleet", fleet_file, "--logs", self.place, stop_s=WORKERS_STOP_S
            )
        ports, log = self.fleet.ports, self.place / "workers.log"
        # -P: what lies in the current directory is not for this program.
        argv: list[str | Path] = [self.python, "-P", "-m", "benchmarks.simulator", "serve"]
        argv += ["--port", str(ports[0]), "--count", str(len(ports)), "--model", self.fleet.model]
        argv += ["--max-model-len", str(self.fleet.max_model_len)]
        argv += ["--long-prefill-token-threshold", "1024"]
        return self.stack.enter_context(services.running("workers", argv, log, WORKERS_STOP_S))


def _start_and_ask(demo: Demo) -> None:
    place, port, key = demo.place, demo.options.port, f"sk-demo-{secrets.token_urlsafe(24)}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "gateway.toml").write_text(gateway_configuration(demo.fleet, port, key))
    kind = "simulated" if demo.options.simulate else "vLLM"
    with demo.steps.step(f"{len(demo.fleet.ports)} {kind} workers with {demo.fleet.model}") as detail:
        workers = demo.start_workers()
        for number, worker_port in enumerate(demo.fleet.ports):
            detail(f"waiting for w{number}; its log is {place}/w{number}.log")
            services.wait_ready(f"http://127.0.0.1:{worker_port}/health", [workers], WORKERS_LIMIT_S)
    with demo.steps.step("The gateway"):
        gateway = demo.start("gateway", "serve", "--config", place / "gateway.toml", stop_s=GATEWAY_STOP_S)
        services.wait_ready(f"http://127.0.0.1:{port}/ready", [workers, gateway], GATEWAY_LIMIT_S)
    _ask(demo, key)
    if not demo.options.smoke:
        print(invitation(demo, key))
        services.watch([workers, gateway])


def _ask(demo: Demo, key: str) -> None:
    print(f"\n    {QUESTION}\n    ", end="", flush=True)
    url = f"http://127.0.0.1:{demo.options.port}/v1"
    argv: list[str | Path] = [demo.python, ROOT / "deploy" / "ask.py", "--base-url", url, "--key", key]
    argv += ["--model", demo.fleet.model, QUESTION]
    # Its own session: Ctrl-C then reaches us alone, and we end it.
    if subprocess.run(argv, start_new_session=True, check=False).returncode != 0:
        raise Refused(f"the gateway did not answer the question; see the logs in {demo.place}")
    print()


def gateway_configuration(fleet: fleets.Fleet, port: int, key: str) -> str:
    """The gateway's file: one model, its workers, one tenant, and its key's digest."""
    workers = "".join(
        f"""
[[workers]]
id = "w{number}"
url = "http://127.0.0.1:{worker_port}"
model = "{fleet.model}"
max_concurrency = {fleet.max_concurrency}
"""
        for number, worker_port in enumerate(fleet.ports)
    )
    return f"""\
[server]
host = "127.0.0.1"
port = {port}
admin_port = {port + 1}
drain_s = 5
settle_s = 0

[store]
url = "memory://"

[[models]]
name = "{fleet.model}"
aliases = ["gpt-4o-mini"]
max_model_len = {fleet.max_model_len}
default_max_tokens = 256
{workers}
[[tenants]]
id = "demo"
models = ["*"]

[[keys]]
id = "demo-1"
tenant = "demo"
sha256 = "{hashlib.sha256(key.encode()).hexdigest()}"
"""


def invitation(demo: Demo, key: str) -> str:
    """What there is to try while everything runs."""
    port, model = demo.options.port, demo.fleet.model
    return f"""\
The gateway is at http://127.0.0.1:{port}/v1; the key is {key}

  curl -N http://127.0.0.1:{port}/v1/chat/completions -H 'authorization: Bearer {key}' \\
    -H 'content-type: application/json' \\
    -d '{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"Tell me a joke."}}]}}'

  The same in Python   {demo.python} {ROOT}/deploy/ask.py --base-url http://127.0.0.1:{port}/v1 \\
                         --model {model} --key {key} "Tell me a joke."
  Metrics              curl http://127.0.0.1:{port + 1}/metrics
  Files and logs       {demo.place}

Ctrl-C stops everything."""


if __name__ == "__main__":
    sys.exit(main())
