"""Does each arm stand between callers and workers as its name says?"""

import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from benchmarks.routing import arms
from benchmarks.routing.arms import ARMS, configuration, running_arm
from benchmarks.routing.workers import Engines, running_workers
from deploy.services import ServiceFailed
from gateway.configuration import parse
from gateway.settings import Settings

KEYS = {"t00": "sk-one", "flood": "sk-two"}
WORKERS = ["http://127.0.0.1:1", "http://127.0.0.1:2"]

# A router that is ready, tells its arguments, and ends when asked.
FAKE_RIVAL = """#!{python}
import http.server, json, sys
class Tells(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(sys.argv[1:]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Tells).serve_forever()
"""


def settings(arm: str) -> Settings:
    return parse(tomllib.loads(configuration(ARMS[arm], "sim", WORKERS, KEYS, (8, 9))), {})


def test_every_arm_goes_by_its_own_name() -> None:
    assert {name: arm.name for name, arm in ARMS.items()} == {name: name for name in ARMS}
    assert {"gateway:length_bucket", "gateway:least_work:open", "sglang-router:cache_aware"} <= set(ARMS)


def test_the_gateway_is_measured_as_it_comes() -> None:
    found = settings("gateway:least_requests")

    assert found.routing == Settings().routing.model_copy(update={"policy": "least_requests"})
    assert found.admission == Settings().admission
    assert [(of.id, of.url, of.max_concurrency) for of in found.workers] == [
        ("w0", WORKERS[0], 256),
        ("w1", WORKERS[1], 256),
    ]
    assert [tenant.id for tenant in found.tenants] == ["t00", "flood"]
    assert [key.tenant for key in found.keys] == ["t00", "flood"]
    assert (found.server.port, found.server.admin_port) == (8, 9)
    assert found.store.url == "memory://"


def test_without_admission_nobody_waits_in_the_gateway() -> None:
    found = settings("gateway:round_robin:open")

    assert found.routing.policy == "round_robin"
    assert found.routing.max_long_prefills == found.routing.max_prefills == 100_000
    assert [of.max_concurrency for of in found.workers] == [100_000] * 2


def test_a_gateway_serves_its_tenants_and_ends_with_the_block(tmp_path: Path) -> None:
    with (
        running_workers(Engines(count=2, speed=50.0), tmp_path) as workers,
        running_arm(
            ARMS["gateway:least_requests"], "simulated", workers.urls, ["t00", "t01"], tmp_path
        ) as to,
    ):
        statuses = [
            httpx.post(
                f"{to.url}/v1/completions",
                json={"model": "simulated", "prompt": "a text", "max_tokens": 2},
                headers={"authorization": f"Bearer {key}"},
                trust_env=False,
            ).status_code
            for key in [*to.keys.values(), "sk-of-nobody"]
        ]

    assert list(to.keys) == ["t00", "t01"]
    assert statuses == [200, 200, 401]
    assert to.service.process.returncode == 0


def test_a_rival_is_waited_for_told_of_the_workers_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "router"
    program.write_text(FAKE_RIVAL.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(arms, "installed", lambda rival: program)

    with running_arm(ARMS["vllm-router:power_of_two"], "sim", WORKERS, ["t00"], tmp_path) as to:
        told = httpx.get(to.url, trust_env=False).json()

    assert told[told.index("--policy") + 1] == "power_of_two"
    assert told[-2:] == WORKERS
    assert to.service.process.returncode is not None


def test_an_arm_that_does_not_start_is_told_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "router"
    program.write_text("#!/bin/sh\necho out of order\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(arms, "installed", lambda rival: program)

    with (
        pytest.raises(ServiceFailed, match="out of order"),
        running_arm(ARMS["sglang-router:cache_aware"], "sim", WORKERS, ["t00"], tmp_path),
    ):
        pass
