"""Is each contender given the workers, its port and its key, and is ours started with everything on?"""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks import environments
from benchmarks.overhead import contenders
from benchmarks.overhead.contenders import (
    CONTENDERS,
    DIRECT,
    FLOOD,
    LITELLM,
    MEMORY,
    NGINX,
    QUARTER,
    REDIS,
    SCALING,
    TWO_PROCESSES,
    Start,
    running_contender,
)
from gateway.configuration import parse
from gateway.settings import Settings

WORKERS = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


def start(name: str, folder: Path, store: str | None = None) -> Start:
    return Start(CONTENDERS[name], (8, 9), WORKERS, "sk-1", folder, store)


def settings(name: str, folder: Path, store: str | None = None) -> Settings:
    return parse(tomllib.loads(start(name, folder, store).gateway_toml()), {})


def test_every_contender_goes_by_its_own_name() -> None:
    assert {name: each.name for name, each in CONTENDERS.items()} == {name: name for name in CONTENDERS}


def test_only_two_processes_are_measured_for_nothing_else() -> None:
    one, two = CONTENDERS[REDIS], CONTENDERS[TWO_PROCESSES]
    assert list(two.connections) == [SCALING]
    assert two.connections[SCALING] / two.processes == one.connections[SCALING] / one.processes
    assert [name for name, each in CONTENDERS.items() if SCALING in each.connections] == [
        REDIS,
        TWO_PROCESSES,
    ]


def test_who_is_very_slow_is_asked_less_and_not_flooded() -> None:
    assert not {FLOOD, QUARTER} & set(CONTENDERS[LITELLM].connections)
    assert max(CONTENDERS[LITELLM].connections.values()) == 4


@pytest.mark.parametrize(
    ("name", "store", "processes"),
    [(MEMORY, None, 1), (REDIS, "redis://127.0.0.1:5/0", 1), (TWO_PROCESSES, "redis://127.0.0.1:5/0", 2)],
)
def test_ours_has_every_limit_and_none_that_refuses(
    name: str, store: str | None, processes: int, tmp_path: Path
) -> None:
    found = settings(name, tmp_path, store)

    [tenant] = found.tenants
    assert tenant.requests_per_minute == tenant.tokens_per_minute == 10**9
    assert tenant.max_concurrency == 100_000
    assert [key.tenant for key in found.keys] == [tenant.id]
    assert found.routing.policy == "length_bucket"
    assert found.store.url == (store or "memory://")
    assert (found.server.port, found.server.admin_port, found.server.processes) == (8, 9, processes)
    assert [worker.url for worker in found.workers] == WORKERS
    assert found.auth.required
    assert found.admission == Settings().admission


def test_nginx_keeps_its_connections_and_holds_nothing_back(tmp_path: Path) -> None:
    text = start(NGINX, tmp_path).nginx_conf()
    for line in (
        "listen 127.0.0.1:8 ",
        "server 127.0.0.1:1; server 127.0.0.1:2;",
        "keepalive 512;",
        "proxy_buffering off;",
        "access_log off;",
    ):
        assert line in text


def test_litellm_checks_its_key_and_knows_both_workers(tmp_path: Path) -> None:
    told = json.loads(start(LITELLM, tmp_path).litellm_yaml())
    bases = [model["litellm_params"]["api_base"] for model in told["model_list"]]
    assert bases == [f"{url}/v1" for url in WORKERS]
    assert told["general_settings"] == {"master_key": "sk-1"}


@pytest.mark.parametrize(
    ("name", "ready", "told"),
    [
        ("vllm-router", "/health", "--worker-urls http://127.0.0.1:1 http://127.0.0.1:2"),
        ("sglang-router", "/readiness", "--policy round_robin"),
        (LITELLM, "/health/liveliness", "--num_workers 1"),
        (NGINX, "/health", "-e stderr"),
        (MEMORY, "/ready", "-m gateway serve --config"),
        ("gateway:memory:compiled", "/ready", f"env PYTHONPATH=program {sys.executable} -P -m gateway serve"),
    ],
)
def test_each_is_started_and_waited_for_in_its_own_way(
    name: str, ready: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "installed", lambda contender: Path("program"))
    assert start(name, tmp_path).ready == ready
    assert told in " ".join(start(name, tmp_path).command())


def test_others_come_from_the_index_in_the_versions_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str]] = []

    def installed(package: str, version: str, program: str) -> Path:
        asked.append((package, version, program))
        return Path(program)

    monkeypatch.setattr(environments, "installed", installed)
    for contender in CONTENDERS.values():
        if contender.is_made and not contender.is_compiled:
            assert contenders.installed(contender) == Path(asked[-1][2])

    assert asked == [
        ("vllm-router", "0.1.17", "vllm-router"),
        ("sglang-router", "0.3.2", "smg"),
        ("litellm[proxy]", "1.108.7", "litellm"),
    ]


def test_ours_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr(environments, "compiled", made.append)
    contenders._compiled.cache_clear()
    places = {contenders.installed(CONTENDERS[name]) for name in contenders.COMPILED}
    contenders._compiled.cache_clear()
    assert places == set(made)
    assert len(made) == 1
    assert made[0].is_dir()


def test_without_a_gateway_callers_go_to_a_worker(tmp_path: Path) -> None:
    with running_contender(CONTENDERS[DIRECT], WORKERS, "0", tmp_path) as target:
        assert (target.url, target.service, target.admin_url) == (WORKERS[0], None, None)
