"""Can the operator see and change, over real sockets, what the admin API's document says?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conftest import KEY, MODEL, Served, configuration, served, sha256
from tests.documented import Documented
from tests.e2e.callers import CHAT, COMPLETIONS, QUESTION, STREAMED
from tests.e2e.observed import GUARD_S, NOWHERE, failing_late, limited
from tests.fakes import FakeWorker, Received, Reply, Script
from tests.redis_server import RedisServer

ADMIN_KEY = "sk-admin-0123456789abcdefghijklmnopqrstuvwxyz"
DOWN = [{"id": "w0", "url": NOWHERE, "model": MODEL}]


@dataclass
class Operated:
    """A gateway with both its ports. Whatever is asked is checked against the port's document."""

    served: Served
    public: httpx.AsyncClient
    admin: httpx.AsyncClient
    public_document: Documented
    admin_document: Documented

    async def ask(self, method: str, path: str, json: object = None, **more: Any) -> httpx.Response:
        """Of the admin port."""
        return await _checked(self.admin, self.admin_document, method, path, json=json, **more)

    async def call(self, method: str, path: str, json: object = None, **more: Any) -> httpx.Response:
        """Of the public port."""
        return await _checked(self.public, self.public_document, method, path, json=json, **more)

    async def workers(self) -> dict[str, dict[str, Any]]:
        return {of["id"]: of for of in (await self.ask("GET", "/admin/workers")).json()["data"]}


async def _checked(
    client: httpx.AsyncClient,
    document: Documented,
    method: str,
    path: str,
    **more: Any,
) -> httpx.Response:
    response = await client.request(method, path, **more)
    if method != "HEAD":
        is_json = response.headers["content-type"] == "application/json"
        told = response.json() if is_json else response.text
        document.check(method, path, response.status_code, response.headers, told)
    return response


@asynccontextmanager
async def operated(*workers: FakeWorker, **sections: Any) -> AsyncIterator[Operated]:
    """Serve these workers, once all are up; without any, one that never is. Keyword arguments as for
    `configuration`."""
    plain: dict[str, Any] = {"admin": {"key_sha256": sha256(ADMIN_KEY)}}
    if not workers:
        plain["workers"] = DOWN
    config = configuration(*workers, **(plain | sections))
    async with (
        asyncio.timeout(GUARD_S),
        served(config, wait_ready=False) as gateway,
        _client(gateway.url, KEY) as public,
        _client(gateway.admin_url, ADMIN_KEY) as admin,
    ):
        documents = [
            Documented((await admin.get(path)).json()) for path in ("/openapi/public.json", "/openapi.json")
        ]
        of = Operated(gateway, public, admin, *documents)
        await until(of, lambda found: sum(worker["up"] for worker in found.values()) == len(workers))
        with failing_late() as failure:
            yield of
    if failure:
        raise failure[0]


def _client(url: str, key: str) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=GUARD_S, trust_env=False)


async def until(of: Operated, is_met: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
    while not is_met(await of.workers()):  # noqa: ASYNC110 - only polling shows it
        await asyncio.sleep(0.01)


def holding(arrived: asyncio.Event, goes_on: asyncio.Event) -> Script:
    """A worker that streams one event, and the rest once it may go on."""

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "text": "a"}]})
        arrived.set()
        await goes_on.wait()
        await reply.event({"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]})
        await reply.done()

    return script


# All there is


async def test_every_operation_answers_as_its_document_says(redis_url: str) -> None:
    async with FakeWorker() as worker, operated(worker, store={"url": redis_url}) as of:
        await of.ask("PUT", "/admin/tenants/globex", {"tokens_per_day": 1000})
        await of.ask("GET", "/admin/tenants/globex")
        await of.ask("GET", "/admin/tenants")
        created = await of.ask(
            "POST", "/admin/keys", {"tenant": "globex", "id": "globex-1", "expires_in_s": 60}
        )
        rotated = await of.ask("POST", "/admin/keys/globex-1/rotate", {"grace_s": 60})
        assert created.json()["key"] != rotated.json()["key"]
        await of.ask("GET", "/admin/keys?tenant=globex")
        await of.ask("DELETE", "/admin/keys/globex-1")
        await of.ask("DELETE", "/admin/tenants/globex")
        await of.ask("GET", "/admin/usage?by=tenant,model")
        await of.ask("GET", "/admin/workers")
        await of.ask("POST", "/admin/workers/w0/drain")
        await of.ask("POST", "/admin/workers/w0/resume")
        for path in ("/metrics", "/health", "/openapi.json", "/openapi/public.json"):
            await of.ask("GET", path)
        succeeded = {(method, path) for method, path, status in of.admin_document.checked if status < 300}
        paths = of.admin_document.document["paths"]
        assert succeeded == {(method.upper(), path) for path, methods in paths.items() for method in methods}


async def test_the_public_port_answers_as_its_document_says() -> None:
    tenants = [{"id": "acme", "requests_per_minute": 8, "tokens_per_minute": 100_000}]
    async with FakeWorker() as worker, operated(worker, tenants=tenants) as of:
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        for path, content, status in (
            (COMPLETIONS, QUESTION, 200),
            (COMPLETIONS, STREAMED, 200),
            (CHAT, chat, 200),
            (CHAT, chat | {"stream": True}, 200),
            (CHAT, chat | {"n": 0}, 400),
            (CHAT, chat | {"model": "none"}, 404),
        ):
            assert (await of.call("POST", path, content)).status_code == status
        assert (await of.call("POST", CHAT, content="{}")).status_code == 415
        assert (await of.call("GET", "/v1/models")).status_code == 200
        assert (await of.call("GET", f"/v1/models/{MODEL}")).status_code == 200
        assert (await of.call("GET", "/v1/models/none")).status_code == 404
        assert (await of.call("GET", "/v1/models", headers={"authorization": ""})).status_code == 401
        statuses = [(await of.call("POST", COMPLETIONS, QUESTION)).status_code for _ in range(9)]
        assert statuses[-1] == 429
        assert (await of.call("GET", "/health")).status_code == 200
        assert (await of.call("GET", "/ready")).status_code == 200
        assert (await of.call("PUT", "/ready")).status_code == 405
        assert (await of.call("GET", "/admin/keys")).status_code == 404


# Who may


async def test_each_port_has_its_own_keys() -> None:
    async with FakeWorker() as worker, operated(worker) as of:
        bearing = {"authorization": f"Bearer {ADMIN_KEY}"}
        assert (await of.call("GET", "/v1/models", headers=bearing)).status_code == 401
        assert (await of.call("POST", COMPLETIONS, QUESTION, headers=bearing)).status_code == 401
        bearing = {"authorization": f"Bearer {KEY}"}
        for path in ("/admin/keys", "/admin/nothing"):
            refused = await of.ask("GET", path, headers=bearing)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            assert refused.headers["cache-control"] == "no-store"


async def test_without_a_key_the_admin_api_is_closed_and_metrics_are_not() -> None:
    config = configuration(workers=DOWN)
    async with served(config, wait_ready=False) as gateway, _client(gateway.admin_url, ADMIN_KEY) as admin:
        refused = await admin.get("/admin/workers")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_api_closed")
        assert (await admin.get("/metrics")).status_code == 200


# Bodies


async def test_a_body_of_more_than_a_mebibyte_is_refused() -> None:
    async with operated() as of:
        refused = await of.ask("PUT", "/admin/tenants/globex", {"cache_group": "a" * 1024 * 1024})
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_body_that_comes_to_a_halt_is_refused() -> None:
    head = (
        "PUT /admin/tenants/globex HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
        f"content-type: application/json\r\nauthorization: Bearer {ADMIN_KEY}\r\n\r\n"
    )
    async with operated(server={"body_timeout_s": 0.05}) as of:
        reader, writer = await asyncio.open_connection("127.0.0.1", of.admin.base_url.port)
        writer.write(head.encode() + b"{")
        assert b" 408 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_head_has_the_head_of_get() -> None:
    async with operated() as of:
        response = await of.ask("HEAD", "/admin/tenants")
        assert (response.status_code, response.content) == (200, b"")
        whole = await of.ask("GET", "/admin/tenants")
        assert response.headers["content-length"] == whole.headers["content-length"]


# Workers


async def test_a_worker_that_drains_ends_its_streams_and_others_take_what_is_new() -> None:
    arrived, goes_on = asyncio.Event(), asyncio.Event()
    async with FakeWorker(holding(arrived, goes_on)) as w0, FakeWorker() as w1, operated(w0, w1) as of:
        await of.ask("POST", "/admin/workers/w1/drain")
        stream = asyncio.create_task(of.call("POST", COMPLETIONS, STREAMED))
        await arrived.wait()
        await of.ask("POST", "/admin/workers/w1/resume")
        drained = (await of.ask("POST", "/admin/workers/w0/drain")).json()
        assert (drained["draining"], drained["in_flight"], drained["up"]) == (True, 1, True)
        for _ in range(5):
            answer = await of.call("POST", COMPLETIONS, QUESTION)
            assert (answer.status_code, answer.headers["x-gateway-worker"]) == (200, "w1")
        goes_on.set()
        answer = await stream
        assert (answer.status_code, answer.headers["x-gateway-worker"]) == (200, "w0")
        assert answer.text.endswith("data: [DONE]\n\n")
        assert (len(w0.requests), (await of.workers())["w0"]["in_flight"]) == (1, 0)


async def test_where_all_workers_drain_requests_are_refused_until_one_is_back() -> None:
    async with FakeWorker() as worker, operated(worker) as of:
        await of.ask("POST", "/admin/workers/w0/drain")
        refused = await of.call("POST", COMPLETIONS, QUESTION)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_worker")
        assert (await of.call("GET", "/ready")).status_code == 503
        assert (await of.call("GET", "/health")).status_code == 200
        await of.ask("POST", "/admin/workers/w0/resume")
        assert (await of.call("GET", "/ready")).status_code == 200
        assert (await of.call("POST", COMPLETIONS, QUESTION)).status_code == 200


async def test_those_who_wait_for_a_worker_that_drains_are_told() -> None:
    arrived, goes_on = asyncio.Event(), asyncio.Event()
    script = holding(arrived, goes_on)
    async with FakeWorker(script) as worker, operated(worker, workers=limited(worker)) as of:
        first = asyncio.create_task(of.call("POST", COMPLETIONS, STREAMED))
        await arrived.wait()
        second = asyncio.create_task(of.call("POST", COMPLETIONS, QUESTION))
        while not of.served.gateway.admission.depth().get(0):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        await of.ask("POST", "/admin/workers/w0/drain")
        refused = await second
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_worker")
        goes_on.set()
        assert (await first).status_code == 200


async def test_a_worker_drains_in_all_gateways_that_share_a_redis_also_in_those_that_come_later(
    redis_url: str,
) -> None:
    store = {"url": redis_url}
    async with (
        FakeWorker() as worker,
        operated(worker, store=store) as one,
        operated(worker, store=store) as two,
    ):
        await one.ask("POST", "/admin/workers/w0/drain")
        await until(two, lambda workers: workers["w0"]["draining"])
        async with operated(worker, store=store) as three:
            await until(three, lambda workers: workers["w0"]["draining"])
        await two.ask("POST", "/admin/workers/w0/resume")
        await until(one, lambda workers: not workers["w0"]["draining"])


@pytest.mark.parametrize("path", ["/admin/workers/w0/drain", "/admin/workers/w0/resume"])
async def test_while_redis_is_away_changes_are_refused_and_what_is_here_is_told(path: str) -> None:
    with RedisServer() as redis:
        async with FakeWorker() as worker, operated(worker, store={"url": redis.url}) as of:
            redis.kill()
            refused = await of.ask("POST", path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
            assert str(redis.port) not in refused.text
            assert (await of.ask("GET", "/admin/keys")).status_code == 503
            assert not (await of.workers())["w0"]["draining"]


# Usage


@pytest.mark.parametrize("has_redis", [False, True])
async def test_what_was_used_is_told(has_redis: bool, redis_url: str) -> None:
    store = {"url": redis_url} if has_redis else {}
    async with FakeWorker() as worker, operated(worker, store=store) as of:
        for _ in range(3):
            assert (await of.call("POST", COMPLETIONS, QUESTION)).status_code == 200
        await of.call("POST", COMPLETIONS, QUESTION | {"n": 0})
        await of.served.idle()
        of.served.log_lines()  # which also counts what was put off
        usage = (await of.ask("GET", "/admin/usage?by=tenant,key,model,outcome")).json()
        [ok] = [row for row in usage["data"] if row["outcome"] == "ok"]
        assert (ok["tenant"], ok["key"], ok["model"], ok["day"]) == ("acme", "acme-1", MODEL, None)
        assert (ok["requests"], ok["prompt_tokens"]) == (3, 21)
        assert usage["total"]["requests"] == 4
