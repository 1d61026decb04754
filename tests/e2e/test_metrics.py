"""Do the metrics tell what the contract names, and can no caller make them grow?"""

import asyncio
import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED
from tests.e2e.observed import observed
from tests.fakes import FakeWorker, Received, Reply, plain_answer
from tests.gateway.test_metrics_exposition import CONTRACT

pytestmark = pytest.mark.usefixtures("either_lane")


async def test_the_metrics_of_the_contract_are_there_with_their_labels() -> None:
    arrived = asyncio.Event()

    async def in_two_parts(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "text": "a"}]})
        await arrived.wait()
        await reply.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 8}})
        await reply.done()

    tenants = [{"id": "acme", "requests_per_minute": 2}]
    scripts = [plain_answer, in_two_parts]
    async with FakeWorker(scripts) as worker, observed(worker, tenants=tenants) as gateway:
        async with gateway.http() as client:
            await client.post(COMPLETIONS, json=QUESTION)
            async with client.stream("POST", COMPLETIONS, json=STREAMED) as stream:
                async for _ in stream.aiter_lines():
                    arrived.set()
            await client.post(COMPLETIONS, json=QUESTION)
        await gateway.idle()
        families = await gateway.families()
        for name, labels in CONTRACT.items():
            found = {label for sample in families[name].samples for label in sample.labels} - {"le"}
            assert found == labels or name == "gateway_worker_failures", name
        assert (
            await gateway.metric("gateway_tokens_total", tenant="acme", model=MODEL, direction="prompt") == 14
        )
        assert await gateway.metric("gateway_tokens_total", direction="completion") == 16
        assert await gateway.metric("gateway_request_seconds_count", endpoint="completions") == 3
        assert await gateway.metric("gateway_ttft_seconds_count", model=MODEL, bucket="0") == 2
        assert await gateway.metric("gateway_inter_token_seconds_count", model=MODEL) >= 1
        assert await gateway.metric("gateway_concurrency_limit", worker="w0") == 16
        assert await gateway.metric("gateway_limited_total", kind="requests") == 1


async def test_what_callers_send_makes_no_new_series() -> None:
    chance = random.Random(1)

    def junk() -> str:
        return "".join(chance.choices('abc"\\\n{}=,é', k=12))

    async with FakeWorker() as worker, observed(worker) as gateway:
        async with gateway.http() as client, gateway.http("sk-no") as stranger:
            await client.post(COMPLETIONS, json=QUESTION)
            before = (await gateway.metrics()).count("\n")

            async def ask() -> None:
                await client.post(COMPLETIONS, json={**QUESTION, "model": junk()})
                await client.post(COMPLETIONS, json={**QUESTION, "user": junk(), "n": 99})
                await client.request(chance.choice(["GET", "PUT", "BREW"]), f"/v1/{chance.random()}")
                await stranger.post(
                    COMPLETIONS, json=QUESTION, headers={"x-request-id": str(chance.random())}
                )

            for _ in range(5):
                await asyncio.gather(*(ask() for _ in range(25)))
            text = await gateway.metrics()
        assert text.count("\n") - before < 80  # of which one histogram of a new outcome has twenty
        assert list(text_string_to_metric_families(text))
        assert await gateway.metric("gateway_requests_total", model="none") == 375
        await gateway.idle()


async def test_the_admin_port_serves_no_requests_and_the_public_port_no_metrics() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.http() as client:
        assert (await gateway.admin.post(COMPLETIONS, json=QUESTION)).status_code == 404
        assert (await gateway.admin.get("/health")).status_code == 200
        assert (await client.get("/metrics")).status_code == 404
        assert worker.requests == []
