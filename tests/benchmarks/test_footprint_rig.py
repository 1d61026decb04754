"""Does the rig start what it says, read it right, and leave nothing behind?"""

import hashlib
import tomllib
from pathlib import Path
from typing import cast

import httpx
import pytest

from benchmarks.footprint import rig
from benchmarks.footprint.rig import (
    Rig,
    Sections,
    WorkerPlan,
    configuration,
    running_rig,
    total_of,
    vm_rss_bytes,
)
from deploy.services import Service, ServiceFailed
from gateway.configuration import parse
from tests.fakes import FakeWorker, Received, Reply
from tests.vllm_answers import response_head

WORKERS = {
    "http://127.0.0.1:1": WorkerPlan("steady", 0.02),
    "http://127.0.0.1:2": WorkerPlan("steady", 0.02),
    "http://127.0.0.1:3": WorkerPlan("images", 0.02),
}


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_resident_memory_is_what_the_kernel_says_in_bytes() -> None:
    assert (
        vm_rss_bytes("Name:\tpython\nVmHWM:\t   9 kB\nVmRSS:\t  54376 kB\nRssAnon:\t 1 kB\n") == 54376 * 1024
    )


def test_a_process_that_has_ended_has_no_resident_memory() -> None:
    with pytest.raises(LookupError, match="has ended"):
        vm_rss_bytes("Name:\tpython\nState:\tZ (zombie)\n")


def test_a_metric_is_summed_over_its_labels() -> None:
    text = (
        "# TYPE gateway_in_flight gauge\n"
        'gateway_in_flight{worker="w0"} 3\ngateway_in_flight{worker="w1"} 4\n'
        "# TYPE gateway_other gauge\ngateway_other 9\n"
    )

    assert total_of(text, "gateway_in_flight") == 7


def test_a_metric_that_does_not_exist_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(LookupError, match="gateway_typo"):
        total_of("# TYPE gateway_other gauge\ngateway_other 9\n", "gateway_typo")


def test_the_configuration_has_one_tenant_without_limits_and_each_model_once() -> None:
    settings = parse(tomllib.loads(configuration(WORKERS, 77, "sk-secret")), {})

    assert [model.name for model in settings.models] == ["steady", "images"]
    assert [(of.url, of.model, of.max_concurrency) for of in settings.workers] == [
        (url, plan.model, 77) for url, plan in WORKERS.items()
    ]
    [tenant] = settings.tenants
    assert (tenant.requests_per_minute, tenant.tokens_per_minute, tenant.max_concurrency) == (
        None,
        None,
        None,
    )
    assert [key.sha256 for key in settings.keys] == [hashlib.sha256(b"sk-secret").hexdigest()]
    assert settings.server.max_body_bytes == 52428800  # the default


def test_settings_that_a_measurement_needs_join_the_others_of_their_section() -> None:
    more: Sections = {"server": {"keep_alive_s": 600}, "routing": {"adaptive_limit": False}}
    settings = parse(tomllib.loads(configuration(WORKERS, 1, "sk-secret", more)), {})

    assert (settings.server.keep_alive_s, settings.server.port, settings.server.host) == (600, 0, "127.0.0.1")
    assert settings.routing.adaptive_limit is False
    assert settings.admission.max_queued == rig.MAX_QUEUED


async def test_a_metric_is_waited_for_until_it_has_the_value() -> None:
    values = iter((2, 1, 0))

    async def metrics(request: Received, reply: Reply) -> None:
        text = f"# TYPE gateway_in_flight gauge\ngateway_in_flight {next(values)}\n".encode()
        await reply.send(response_head(200, {"content-length": str(len(text))}) + text)

    async with FakeWorker(probe=metrics) as admin:
        process = cast(Service, None)  # which tells nothing about metrics
        found = await Rig(process, "", admin.url, "").reaches("gateway_in_flight", 0, limit_s=30)

    assert found == 0
    assert len(admin.probes) == 3


async def test_a_rig_serves_is_measured_and_ends_with_its_block() -> None:
    with running_rig([WorkerPlan("steady", 0.0)], max_concurrency=5) as started:
        pid = started.gateway.process.pid
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            models = await client.get(
                f"{started.url}/v1/models", headers={"authorization": f"Bearer {started.key}"}
            )
        limit = await started.reaches("gateway_concurrency_limit", 5, limit_s=30)
        never = await started.reaches("gateway_in_flight", 1, limit_s=0)
        rss_bytes = started.rss_bytes()
        alive = is_alive(pid)

    assert [card["id"] for card in models.json()["data"]] == ["steady"]
    assert (limit, never) == (5, 0)
    assert 1e7 < rss_bytes < 1e9
    assert alive
    assert not is_alive(pid)
    assert started.gateway.process.returncode == 0
    assert not started.gateway.log.exists()


def test_a_worker_that_does_not_start_is_told_with_its_own_words() -> None:
    with (
        pytest.raises(ServiceFailed, match=r"worker 0 ended with status 2[\s\S]*--interval-s"),
        running_rig([WorkerPlan("steady", -1.0)], max_concurrency=5),
    ):
        pass


def test_a_program_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig, "START_LIMIT_S", 0.0)

    with (
        pytest.raises(ServiceFailed, match="did not start within 0 s"),
        running_rig([WorkerPlan("steady", 0.0)], max_concurrency=5),
    ):
        pass
