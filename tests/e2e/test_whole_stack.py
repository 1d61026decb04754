"""With all that can be switched on, as in production: does a caller who leaves still stop the worker?"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.conftest import configuration, sha256
from tests.e2e.callers import QUESTION, STREAMED, Caller
from tests.e2e.observed import POLL_S
from tests.e2e.program import program
from tests.fakes import FakeWorker, Received, Reply

TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}
ORIGIN = "https://app.example"
TENANT = {
    "id": "acme",
    "requests_per_minute": 600,
    "tokens_per_minute": 200_000,
    "requests_per_day": 10_000,
    "tokens_per_day": 1_000_000,
    "max_concurrency": 1,  # a slot that is not given back shows at once
    "weight": 2.0,
    "priority": "interactive",
}


def everything(place: Path, redis_url: str) -> dict[str, Any]:
    return {
        "server": {"processes": 2, "cors_origins": [ORIGIN], "drain_s": 1},
        "store": {"url": redis_url, "timeout_ms": 2000},
        "admin": {"key_sha256": sha256("sk-admin")},
        "usage": {"records": str(place / "usage.jsonl")},
        "routing": {"policy": "round_robin", "learn_long_prompts": True},
        "tenants": [TENANT],
    }


@pytest.mark.case("S1")
@pytest.mark.parametrize("leave", [Caller.leave, Caller.reset], ids=["by FIN", "by RST"])
async def test_leaving_a_stream_that_goes_on_stops_its_worker_and_is_sent_to_no_other(
    leave: Callable[[Caller], None], tmp_path: Path, redis_url: str
) -> None:
    left = asyncio.Event()

    async def endless(request: Received, reply: Reply) -> None:
        if not request.json().get("stream"):
            await reply.json({})
            return
        await reply.stream_head()
        for _ in range(3):
            await reply.event(TOKEN)
        await left.wait()
        while True:  # ends by ConnectionResetError
            await reply.event(TOKEN)
            await asyncio.sleep(0)

    async with (
        FakeWorker(endless) as one,
        FakeWorker(endless) as two,
        program(configuration(one, two, **everything(tmp_path, redis_url)), tmp_path) as gateway,
        Redis.from_url(redis_url) as redis,
    ):
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED, headers={"origin": ORIGIN})
            for _ in range(3):
                await caller.until(b"\n\n")
            await gateway.reaches(1, "gateway_in_flight")
            leave(caller)
            left.set()
            [busy] = [worker for worker in (one, two) if worker.requests]
            await busy.closed_by_peer(1)
        await gateway.reaches(1, "gateway_requests_total")
        await gateway.reaches(0, "gateway_in_flight")
        await gateway.reaches(0, "gateway_queue_depth")
        while await redis.zcard("gateway:{acme}:leases"):  # noqa: ASYNC110 - only polling shows it
            await asyncio.sleep(POLL_S)
        assert len(one.requests) + len(two.requests) == 1
        async with Caller(gateway.url) as caller:
            caller.ask(QUESTION)
            assert (await caller.head())[0] == 200
