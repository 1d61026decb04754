"""Do the gateway's example configurations hold what they say?"""

import hashlib
from collections.abc import Mapping

import pytest

from gateway.configuration import load
from gateway.settings import Settings
from tests.deploy.files import ROOT, Service, services

FILES = ["deploy/gateway.toml", "deploy/gateway.compose.toml"]
NOTHING: Mapping[str, str] = {}


@pytest.mark.parametrize("file", FILES)
def test_an_example_is_valid(file: str) -> None:
    load(ROOT / file, NOTHING)


@pytest.mark.parametrize("file", FILES)
def test_no_example_opens_a_door_with_a_key_that_everyone_can_read(file: str) -> None:
    """A hash of one digit over and over is that of no key anyone has."""
    settings = load(ROOT / file, NOTHING)

    assert settings.auth.required
    assert all(len(set(key.sha256)) == 1 for key in settings.keys)
    assert hashlib.sha256(b"").hexdigest() not in {key.sha256 for key in settings.keys}


def composed() -> tuple[Settings, dict[str, Service]]:
    return load(ROOT / "deploy/gateway.compose.toml", NOTHING), services()


def test_the_composed_gateway_listens_where_the_other_containers_look_for_it() -> None:
    settings, found = composed()

    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 8080)
    assert (settings.server.admin_host, settings.server.admin_port) == ("0.0.0.0", 8081)
    assert found["gateway"]["expose"] == ["8081"]


def test_the_composed_gateway_knows_every_worker_under_its_name_and_limits() -> None:
    settings, found = composed()
    models = {model.name: model for model in settings.models}

    assert {worker.url for worker in settings.workers} == {
        f"http://{name}:8000" for name in found if name.startswith("worker-")
    }
    for worker in settings.workers:
        command = found[worker.url.removeprefix("http://").removesuffix(":8000")]["command"]
        assert value(command, "--served-model-name") == worker.model
        assert value(command, "--max-num-seqs") == str(worker.max_concurrency)
        assert value(command, "--max-model-len") == str(models[worker.model].max_model_len)


def test_idle_connections_are_given_up_before_the_workers_close_them() -> None:
    settings, found = composed()
    kept_s = {
        int(s["environment"]["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"])
        for n, s in found.items()
        if n.startswith("worker-")
    }

    assert settings.upstream.idle_s < min(kept_s)


def value(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]
