"""Do workers of several --max-model-len serve one model, each what it is long enough for?"""

import asyncio
from functools import partial

import pytest

from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.gates import Gate
from tests.e2e.observed import GUARD_S, STEADY_PROBES, limited, observed
from tests.fakes import MODEL, FakeWorker, answer_probe, plain_answer

pytestmark = pytest.mark.usefixtures("either_lane")

LONG = QUESTION | {"prompt": [1], "max_tokens": 3000}
SHORT = QUESTION | {"prompt": [1] * 500}  # though it would come after the other, of one tenant


@pytest.mark.case("Q3")
async def test_what_is_long_goes_to_the_long_worker_and_keep_nobody_from_the_short_one() -> None:
    gate = Gate()
    long = partial(answer_probe, max_model_len=8192)
    async with (
        FakeWorker(plain_answer) as short_worker,
        FakeWorker([gate, plain_answer], probe=long) as long_worker,
        observed(
            short_worker,
            long_worker,
            fleet=STEADY_PROBES,
            models=[{"name": MODEL}],
            workers=limited(short_worker, long_worker),
        ) as gateway,
        gateway.http() as client,
    ):
        async with asyncio.timeout(GUARD_S):
            while {8192} != {
                card["max_model_len"] for card in (await client.get("/v1/models")).json()["data"]
            }:
                pass  # models are asked for after a worker is up
        first = asyncio.create_task(client.post(COMPLETIONS, json=LONG))
        await gateway.reaches(1, "gateway_in_flight", worker="w1")
        second = asyncio.create_task(client.post(COMPLETIONS, json=LONG))
        await gateway.reaches(1, "gateway_queue_depth", bucket="0")
        for _ in range(3):
            answer = await client.post(COMPLETIONS, json=SHORT)
            assert (answer.status_code, answer.headers["x-gateway-worker"]) == (200, "w0")
        gate.open.set()
        for answer in (await first, await second):
            assert (answer.status_code, answer.headers["x-gateway-worker"]) == (200, "w1")
        assert {request.json()["model"] for request in long_worker.requests} == {MODEL}
