"""What must be in place before a fleet starts."""

import os
import socket
from pathlib import Path

import pytest

from tests.workers.conftest import ONE_WORKER, Fleets, free_port
from workers.launch import default_logs, prepare, url
from workers.problems import Refused
from workers.process import Launch

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/ada"}


def launch(fleets: Fleets, extra: str, environ: dict[str, str]) -> Launch:
    """Prepares one worker on a free port; `sh` stands in for vLLM."""
    text = ONE_WORKER.replace("8101", str(free_port())) + 'vllm = "sh"\n' + extra
    return prepare(fleets.plans(text), fleets.folder / "logs", environ)[0]


def refused(fleets: Fleets, text: str) -> list[str]:
    with pytest.raises(Refused) as refusal:
        prepare(fleets.plans(text), fleets.folder / "logs", ENVIRON)
    return [str(problem) for problem in refusal.value.problems]


def test_a_worker_gets_the_callers_environment_its_own_and_its_key(fleets: Fleets) -> None:
    environ = ENVIRON | {"VLLM_SERVER_DEV_MODE": "1", "WORKER_KEY": "secret"}
    ready = launch(fleets, 'api_key_env = "WORKER_KEY"', environ)
    assert ready.env["HOME"] == "/home/ada"
    assert ready.env["VLLM_SERVER_DEV_MODE"] == "0"
    assert ready.env["VLLM_API_KEY"] == "secret"
    assert not any("secret" in word for word in ready.argv)
    assert "secret" not in repr(ready)


def test_the_limits_and_places_come_from_the_fleet_file(fleets: Fleets) -> None:
    ready = launch(fleets, "start_limit_s = 7\nshutdown_timeout_s = 5", ENVIRON)
    assert (ready.id, ready.start_limit_s, ready.shutdown_timeout_s) == ("w0", 7, 5)
    assert ready.log == fleets.folder / "logs" / "w0.log"


def test_health_is_asked_for_at_an_address_that_can_be_reached(fleets: Fleets) -> None:
    ready = launch(fleets, 'host = "0.0.0.0"', ENVIRON)
    assert ready.url.startswith("http://0.0.0.0:")
    assert ready.health_url == ready.url.replace("0.0.0.0", "127.0.0.1") + "/health"
    assert url("::1", 80) == "http://[::1]:80"


def test_the_log_of_the_last_run_is_kept(fleets: Fleets) -> None:
    log = launch(fleets, "", ENVIRON).log
    log.write_text("old")
    launch(fleets, "", ENVIRON)
    assert not log.exists()
    assert log.with_name("w0.previous.log").read_text() == "old"


def test_everything_in_the_way_is_reported_at_once(fleets: Fleets) -> None:
    (fleets.folder / "logs").write_text("a file where the folder should be")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = ONE_WORKER.replace("8101", str(port)) + 'vllm = "no-vllm"\napi_key_env = "WORKER_KEY"\n'
        found = refused(fleets, text)
    assert found == [
        'workers[0].vllm = "no-vllm": no such program; install it, or give its path',
        'workers[0].api_key_env = "WORKER_KEY": export WORKER_KEY with the worker\'s key first',
        f"workers[0].port = {port}: cannot listen on 127.0.0.1: Address already in use; choose another",
        f'--logs = "{fleets.folder / "logs"}": cannot make this folder: File exists',
    ]


def test_the_interpreter_of_a_cpu_worker_must_exist(fleets: Fleets) -> None:
    shape = "layers = 1\nhidden_size = 64\nheads = 1\nkv_heads = 1\nhead_dim = 64\nintermediate_size = 64\n"
    rest = "vocab_size = 64\nmax_position_embeddings = 2048\n"
    text = (
        f'[[workers]]\nid = "w0"\ndevice = "cpu"\nport = {free_port()}\npython = "/no/python"\nmodel = "/m"\n'
        f"[workers.shape]\n{shape}{rest}"
    )
    assert refused(fleets, text)[0].startswith('workers[0].python = "/no/python": no such program')


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_machine_is_refused(fleets: Fleets, host: str) -> None:
    text = ONE_WORKER + f'vllm = "sh"\nhost = "{host}"\n'
    (problem,) = refused(fleets, text)
    assert problem.startswith(f"workers[0].port = 8101: cannot listen on {host}: ")
    assert problem.endswith("; choose another")


def test_a_worker_may_listen_on_a_name_of_the_loopback(fleets: Fleets) -> None:
    assert launch(fleets, 'host = "localhost"', ENVIRON).url.startswith("http://localhost:")


def test_a_port_whose_connections_linger_is_free(fleets: Fleets) -> None:
    # The side that closes first keeps the port in TIME_WAIT.
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as caller:
            server.accept()[0].close()
            assert caller.recv(1) == b""
    text = ONE_WORKER.replace("8101", str(port)) + 'vllm = "sh"\n'
    assert prepare(fleets.plans(text), fleets.folder / "logs", ENVIRON)


def test_logs_go_to_the_users_state_directory() -> None:
    assert default_logs({"XDG_STATE_HOME": "/state"}) == Path("/state/vllm-gateway/logs")
    assert default_logs({}) == Path(os.path.expanduser("~/.local/state/vllm-gateway/logs"))
