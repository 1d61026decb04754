"""Are long-running programs waited for, watched and stopped, even unwilling ones?"""

import signal
import socket
import sys
from pathlib import Path

import pytest

from deploy import services
from deploy.services import ServiceFailed, running, wait_ready

IDLE = "import time; print('idle', flush=True); time.sleep(600)"
DEAF = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "open(sys.argv[1], 'w').close(); time.sleep(600)"
)
ENDS = "import sys; print('what went wrong'); sys.exit(3)"
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    answers = iter([503, 200])
    def do_GET(self):
        self.send_response(next(self.answers))
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "POLL_S", 0.01)
    monkeypatch.setattr(services, "KILL_S", 0.2)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "program.log"


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_program_is_stopped_at_the_end_of_the_block(log: Path) -> None:
    with running("idle", python(IDLE), log, stop_s=10) as service:
        service.check()
    assert service.process.returncode == -signal.SIGTERM


def test_program_that_ignores_sigterm_is_killed(log: Path, tmp_path: Path) -> None:
    with running("deaf", python(DEAF, tmp_path / "deaf"), log, stop_s=0.1) as service:
        while not (tmp_path / "deaf").exists():
            service.check()
    assert service.process.returncode == -signal.SIGKILL


def test_another_ctrl_c_skips_the_wait_and_still_stops_the_program(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running("deaf", python(DEAF, tmp_path / "deaf"), log, stop_s=600) as service:
        while not (tmp_path / "deaf").exists():
            service.check()
        wait = service.process.wait

        def interrupted(timeout: float | None = None) -> int:
            if timeout == 600:
                raise KeyboardInterrupt
            return wait(timeout)

        monkeypatch.setattr(service.process, "wait", interrupted)
    assert service.process.returncode == -signal.SIGKILL


def test_program_that_ended_is_named_with_the_end_of_its_log(log: Path) -> None:
    with running("broken", python(ENDS), log, stop_s=10) as service:
        with pytest.raises(ServiceFailed, match="broken ended with status 3"):
            services.watch([service])
        assert service.tail() == f"The end of {log}:\n    what went wrong"


def test_environment_is_added_to_ours(log: Path) -> None:
    code = "import os, sys; sys.exit(int(os.environ['STATUS']) if 'PATH' in os.environ else 1)"
    with running("status", python(code), log, stop_s=10, env={"STATUS": "7"}) as service:
        assert service.process.wait(10) == 7


def test_ready_means_that_a_get_is_answered_with_200(log: Path) -> None:
    port = unused_port()
    with running("server", python(SERVER, port), log, stop_s=10) as service:
        wait_ready(f"http://127.0.0.1:{port}/ready", [service], limit_s=30)
    assert '"GET /ready HTTP/1.1" 503' in log.read_text()
    assert '"GET /ready HTTP/1.1" 200' in log.read_text()


def test_waiting_ends_when_the_program_ends(log: Path) -> None:
    with (
        running("broken", python(ENDS), log, stop_s=10) as service,
        pytest.raises(ServiceFailed, match="broken"),
    ):
        wait_ready(f"http://127.0.0.1:{unused_port()}/", [service], limit_s=600)


def test_waiting_ends_at_its_limit(log: Path) -> None:
    refused = pytest.raises(ServiceFailed, match="did not answer within 0 s")
    with running("idle", python(IDLE), log, stop_s=10) as service, refused:
        wait_ready(f"http://127.0.0.1:{unused_port()}/", [service], limit_s=0.05)


def test_proxies_of_the_environment_are_not_asked(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port()}")
    port = unused_port()
    with running("server", python(SERVER, port), log, stop_s=10) as service:
        wait_ready(f"http://127.0.0.1:{port}/", [service], limit_s=30)


def test_port_is_free_until_someone_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not services.port_is_free(port)
    assert services.port_is_free(port)
