"""Can the planned workers start on this machine now, and with what exactly?"""

import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from workers.plan import WorkerPlan
from workers.problems import Problem, Refused
from workers.process import Launch
from workers.spec import Worker


def default_logs(environ: Mapping[str, str]) -> Path:
    """Where logs go unless told otherwise: the user's state directory."""
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "vllm-gateway" / "logs"


def prepare(plans: Sequence[WorkerPlan], logs: Path, environ: Mapping[str, str]) -> list[Launch]:
    """Makes the log folder and completes each command with the environment and its secrets.

    Logs of an earlier run are kept as `<id>.previous.log`. Raises Refused with everything that is in the way.
    """
    problems = [problem for index, plan in enumerate(plans) for problem in _obstacles(index, plan, environ)]
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problems.append(Problem("--logs", f"cannot make this folder: {error.strerror}", str(logs)))
    if problems:
        raise Refused(problems)
    return [_launch(plan, logs, environ) for plan in plans]


def _launch(plan: WorkerPlan, logs: Path, environ: Mapping[str, str]) -> Launch:
    worker, command = plan.worker, plan.command
    log = logs / f"{worker.id}.log"
    if log.exists():
        log.replace(logs / f"{worker.id}.previous.log")
    secrets = {name: environ[source] for name, source in command.secrets.items()}
    return Launch(
        id=worker.id,
        argv=command.argv,
        env={**environ, **command.env, **secrets},
        log=log,
        url=url(worker.host, worker.port),
        health_url=url(_reachable(worker.host), worker.port) + "/health",
        start_limit_s=worker.start_limit_s,
        shutdown_timeout_s=worker.shutdown_timeout_s,
    )


def _obstacles(index: int, plan: WorkerPlan, environ: Mapping[str, str]) -> Iterator[Problem]:
    worker, command = plan.worker, plan.command
    where = f"workers[{index}]"
    program = command.argv[0]
    if shutil.which(program, path=environ.get("PATH")) is None:
        field = "vllm" if worker.device == "cuda" else "python"
        yield Problem(f"{where}.{field}", "no such program; install it, or give its path", program)
    for source in command.secrets.values():
        if not environ.get(source):
            yield Problem(f"{where}.api_key_env", f"export {source} with the worker's key first", source)
    # Otherwise whatever answers there would be taken for the worker.
    if fault := _cannot_listen(worker):
        yield Problem(
            f"{where}.port", f"cannot listen on {worker.host}: {fault}; choose another", worker.port
        )


def _cannot_listen(worker: Worker) -> str | None:
    family = socket.AF_INET6 if ":" in worker.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # As the worker itself will: connections of an earlier run that linger are no hindrance.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((worker.host, worker.port))
        except OSError as error:
            return error.strerror
    return None


def url(host: str, port: int) -> str:
    """The base URL of a worker."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _reachable(host: str) -> str:
    """An address to ask a worker at that listens on all of them."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
