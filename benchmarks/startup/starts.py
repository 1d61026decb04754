"""What does one start take? From exec to the first 200 of /ready, as whoever rolls gateways out sees it."""

import http.client
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.footprint.rig import SERVING, START_LIMIT_S, STOP_S, announced, serve
from deploy.services import Service, ServiceFailed, running

POLL_S = 0.002  # far below what is measured, and cheap
# In the order in which `gateway serve` comes to them.
IMPORTS = "import gateway.__main__; gateway.__main__.main.get_command(None, 'serve')"
IMPORT_LIMIT_S = 60.0
ANSWER_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """One start of `gateway serve`, until /ready answers 200, in seconds."""

    wall_s: float
    cpu_s: float  # of all its threads


def start(file: Path, folder: Path) -> Start:
    """Start a gateway with this configuration, and end it. Raises ServiceFailed.

    folder: for its log.
    """
    began_s = time.perf_counter()
    with running("the gateway", serve(file), folder / "gateway.log", STOP_S) as gateway:
        public, _ = announced(gateway, SERVING, POLL_S)
        deadline_s = began_s + START_LIMIT_S
        while not _is_ready(public):
            gateway.check()
            if time.perf_counter() > deadline_s:
                raise ServiceFailed(f"{public}/ready did not answer 200 in time. {gateway.tail()}")
            time.sleep(POLL_S)
        return Start(time.perf_counter() - began_s, _cpu_s(gateway))


def import_cpu_s() -> float:
    """Processor time of a fresh interpreter for the modules of `gateway serve`. Raises ServiceFailed."""
    program = f"import time; began = time.process_time(); {IMPORTS}; print(time.process_time() - began)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=IMPORT_LIMIT_S,
        )
    except subprocess.CalledProcessError as error:
        raise ServiceFailed(f"the gateway cannot be imported: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise ServiceFailed(f"to import the gateway took longer than {IMPORT_LIMIT_S:g} s") from error
    return float(done.stdout)


def _is_ready(url: str) -> bool:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_LIMIT_S)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _cpu_s(service: Service) -> float:
    """Processor time of all threads so far, which the scheduler counts in nanoseconds."""
    threads = Path(f"/proc/{service.process.pid}/task").glob("*/schedstat")
    return sum(int(of.read_text(encoding="utf-8").split()[0]) for of in threads) / 1e9
