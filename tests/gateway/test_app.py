"""Is a gateway put together as its settings say, does it stand beside another, and does it drain?"""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway.app import Gateway
from gateway.configuration import parse
from gateway.journal import Journal
from gateway.parts import ANONYMOUS
from gateway.routing import POLICIES
from gateway.server import listen, running
from tests.conftest import KEY, MODEL, configuration, served
from tests.fakes import FakeWorker, Received, Reply, Script

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"


def endless(begun: asyncio.Event) -> Script:
    """A worker that streams one token and then nothing."""

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "delta": {"content": "a"}}]})
        begun.set()
        await reply.peer_closed()

    return script


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the key, once the gateway at that port is ready."""
    url, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False) as client:
        async with asyncio.timeout(10):
            while not await is_ready(client):  # noqa: ASYNC110 - the gateway tells nobody
                await asyncio.sleep(0.01)
        yield client


async def is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/ready")).status_code == 200
    except httpx.ConnectError:
        return False


async def test_two_gateways_live_in_one_process_and_share_nothing() -> None:
    tenants = [{"id": "acme", "requests_per_minute": 1}]
    async with FakeWorker() as worker:
        config = configuration(worker, tenants=tenants)
        async with served(config) as one, served(config) as two, one.http() as first, two.http() as second:
            statuses = [
                (await client.post(PATH, json=CHAT)).status_code for client in (first, second, first, second)
            ]
            assert statuses == [200, 200, 429, 429]
            assert len(one.log_lines()) == len(two.log_lines()) == 2


async def test_without_keys_everyone_is_the_anonymous_tenant() -> None:
    async with FakeWorker() as worker:
        config = configuration(worker, auth={"required": False}, tenants=[], keys=[])
        async with served(config) as gateway, gateway.http(None) as client:
            assert (await client.post(PATH, json=CHAT)).status_code == 200
            assert [line["tenant"] for line in gateway.log_lines()] == [ANONYMOUS]


async def test_the_anonymous_tenant_has_the_limits_that_are_configured_for_it() -> None:
    tenants = [{"id": ANONYMOUS, "requests_per_minute": 7}]
    async with FakeWorker() as worker:
        config = configuration(worker, auth={"required": False}, tenants=tenants, keys=[])
        async with served(config) as gateway, gateway.http(None) as client:
            answer = await client.post(PATH, json=CHAT)
    assert answer.headers["x-ratelimit-limit-requests"] == "7"


async def test_a_tenant_is_made_with_all_its_settings() -> None:
    tenants = [
        {
            "id": "acme",
            "models": ["gpt-4o-mini"],
            "requests_per_minute": 70,
            "tokens_per_minute": 7000,
            "max_concurrency": 1,
        }
    ]
    begun = asyncio.Event()
    async with (
        FakeWorker(endless(begun)) as worker,
        served(configuration(worker, tenants=tenants)) as gateway,
    ):
        async with gateway.http() as client:
            allowed = CHAT | {"model": "gpt-4o-mini"}
            async with client.stream("POST", PATH, json=allowed | {"stream": True}) as answer:
                await begun.wait()
                assert answer.headers["x-ratelimit-limit-requests"] == "70"
                assert answer.headers["x-ratelimit-limit-tokens"] == "7000"
                second = await client.post(PATH, json=allowed)
                assert second.json()["error"]["type"] == "concurrency"
            assert (await client.post(PATH, json=CHAT)).status_code == 403
        await gateway.idle()


async def test_the_cache_salt_follows_the_secret_and_is_new_each_time_without_one() -> None:
    async def salt(**auth: Any) -> str:
        async with FakeWorker() as worker, served(configuration(worker, auth=auth)) as gateway:
            async with gateway.http() as client:
                await client.post(PATH, json=CHAT)
            return str(worker.requests[0].json()["cache_salt"])

    kept = {"cache_salt_secret": "s3cret"}
    assert await salt(**kept) == await salt(**kept)
    assert await salt() != await salt()


async def test_a_workers_own_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_KEY", "w-secret")
    async with FakeWorker() as worker:
        config = configuration(worker)
        config["workers"][0]["api_key_env"] = "WORKER_KEY"
        with listen("port", "127.0.0.1", 0) as public, listen("admin_port", "127.0.0.1", 0) as admin:
            settings = parse(config, os.environ)
            gateway = Gateway(settings, Journal(io.BytesIO()))
            serving = running(gateway.on(public, admin), settings.server)
            async with gateway, serving, calling(public.getsockname()[1]) as client:
                assert (await client.post(PATH, json=CHAT)).status_code == 200
        [request] = worker.requests
        assert request.headers["authorization"] == "Bearer w-secret"
        assert {probe.headers["authorization"] for probe in worker.probes} == {"Bearer w-secret"}


async def test_browsers_of_named_origins_may_call_and_read_our_headers() -> None:
    origin = "https://app.example"
    async with FakeWorker() as worker:
        config = configuration(worker, server={"cors_origins": [origin]})
        async with served(config) as gateway, gateway.http() as client:
            asked = await client.options(
                PATH, headers={"origin": origin, "access-control-request-method": "POST"}
            )
            answer = await client.post(PATH, json=CHAT, headers={"origin": origin})
            stranger = await client.post(PATH, json=CHAT, headers={"origin": "https://other.example"})
    assert asked.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-origin"] == origin
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in stranger.headers


async def test_without_origins_there_is_no_cors() -> None:
    async with FakeWorker() as worker, served(configuration(worker)) as gateway, gateway.http() as client:
        answer = await client.post(PATH, json=CHAT, headers={"origin": "https://app.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("policy", POLICIES)
async def test_every_policy_can_be_chosen(policy: str) -> None:
    async with FakeWorker() as worker:
        config = configuration(worker, routing={"policy": policy})
        async with served(config) as gateway, gateway.http() as client:
            assert (await client.post(PATH, json=CHAT)).status_code == 200


async def test_a_place_that_comes_free_goes_to_who_waits_for_it() -> None:
    go_on = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await go_on.wait()
        await reply.json({"choices": []})

    async with FakeWorker(script) as worker:
        config = configuration(worker)
        config["workers"][0]["max_concurrency"] = 1
        async with served(config) as gateway, gateway.http() as client:
            asking = [asyncio.create_task(client.post(PATH, json=CHAT)) for _ in range(3)]
            async with asyncio.timeout(10):
                while sum(gateway.gateway.admission.depth().values()) < 2:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.001)
            go_on.set()
            assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200, 200, 200]


async def test_a_gateway_that_has_ended_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    async with FakeWorker() as worker, served(configuration(worker)) as gateway:
        assert "requests under way" in [task.get_name() for task in asyncio.all_tasks()]
        await gateway.idle()
    await asyncio.sleep(0)  # cancelled tasks end in the next pass of the loop
    assert asyncio.all_tasks() == before


# Draining


async def drained(gateway: Gateway) -> None:
    await gateway.drain(asyncio.Event())


async def test_a_drain_without_requests_ends_at_once_and_nothing_new_is_taken() -> None:
    async with FakeWorker() as worker:
        config = configuration(worker, server={"drain_s": 3600})
        async with served(config) as gateway, gateway.http() as client:
            await drained(gateway.gateway)
            answers = [await client.get("/ready"), await client.post(PATH, json=CHAT)]
            assert [(of.status_code, of.json()["error"]["code"]) for of in answers] == [(503, "draining")] * 2
            assert (await client.get("/health")).status_code == 200


async def test_a_drain_lets_what_is_under_way_end() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        begun.set()
        await go_on.wait()
        await reply.json({"choices": []})

    async with FakeWorker(script) as worker:
        config = configuration(worker, server={"drain_s": 3600})
        async with served(config) as gateway, gateway.http() as client:
            asking = asyncio.create_task(client.post(PATH, json=CHAT))
            await begun.wait()
            draining = asyncio.create_task(drained(gateway.gateway))
            await asyncio.sleep(0)
            assert not draining.done()
            go_on.set()
            assert (await asking).status_code == 200
            await draining


async def ended_by(end: Callable[[Gateway], Coroutine[Any, Any, None]], **server: Any) -> str:
    """What a caller of an endless stream hears when a drain ends it."""
    begun = asyncio.Event()
    async with FakeWorker(endless(begun)) as worker, served(configuration(worker, server=server)) as gateway:
        stream = CHAT | {"stream": True}
        async with gateway.http() as client, client.stream("POST", PATH, json=stream) as answer:
            await begun.wait()
            ending = asyncio.create_task(end(gateway.gateway))
            heard = (await answer.aread()).decode()
            await ending
        assert [line["outcome"] for line in gateway.log_lines()] == ["draining"]
        assert len(gateway.gateway.under_way) == 0
    return heard


async def test_what_does_not_end_in_time_is_ended_with_an_error_event() -> None:
    heard = await ended_by(drained, drain_s=0.05)
    assert '"code": "draining"' in heard.rpartition("data: ")[2]


async def test_a_hurried_drain_waits_for_nobody() -> None:
    async def hurried(gateway: Gateway) -> None:
        hurry = asyncio.Event()
        hurry.set()
        await gateway.drain(hurry)

    assert '"code": "draining"' in await ended_by(hurried, drain_s=3600)
