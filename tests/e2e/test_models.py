"""Is the list of models whole and quick while workers come and go, and is a known model never unknown?"""

import openai
import pytest

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.observed import NOWHERE, observed
from tests.fakes import FakeWorker, Received, Reply, answer_probe

DEAD = {"id": "dead", "url": NOWHERE, "model": MODEL}


async def adapters(request: Received, reply: Reply) -> None:
    """A worker's probes that tell of a base model and two adapters of it."""
    if request.target != "/v1/models":
        await answer_probe(request, reply)
        return
    common = {"object": "model", "created": 17, "owned_by": "vllm", "root": "/secret/path"}
    cards = [
        {**common, "id": MODEL, "parent": None, "max_model_len": 4096},
        {**common, "id": "lora-a", "parent": MODEL},
        {**common, "id": "lora-b", "parent": MODEL},
        {**common, "id": "unheard-of", "parent": None},
    ]
    await reply.json({"object": "list", "data": cards})


async def test_the_list_is_the_union_of_what_is_configured_and_reported_each_once() -> None:
    models = [{"name": MODEL, "aliases": ["gpt-4o-mini"]}]
    async with FakeWorker(probe=adapters) as worker, FakeWorker(probe=adapters) as second:
        workers = [
            {"id": "w0", "url": worker.url, "model": MODEL},
            {"id": "w1", "url": second.url, "model": MODEL},
            DEAD,
        ]
        async with (
            observed(worker, second, models=models, workers=workers) as gateway,
            gateway.client() as client,
            gateway.http() as plain,
        ):
            while len((await client.models.list()).data) < 4:  # the reports follow the first health check
                pass
            listed = {card.id: card for card in (await client.models.list()).data}
            assert len((await plain.get("/v1/models")).json()["data"]) == len(listed)
            assert listed.keys() == {MODEL, "gpt-4o-mini", "lora-a", "lora-b"}
            for name, card in listed.items():
                assert (card.object, card.owned_by) == ("model", "vllm")
                assert isinstance(card.created, int)
                assert card.model_extra is not None
                assert card.model_extra["max_model_len"] == 4096, name
                assert card == await client.models.retrieve(name)
            assert listed["lora-a"].model_extra == {"max_model_len": 4096, "parent": MODEL}
            assert "secret" not in (await plain.get("/v1/models")).text
            answer = await client.completions.create(model="lora-b", prompt="hi", max_tokens=2)
            assert answer.choices
            assert [r.json()["model"] for r in (*worker.requests, *second.requests)] == ["lora-b"]


async def test_the_list_does_not_wait_for_workers_that_are_slow_or_dead() -> None:
    async def never(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async with FakeWorker(probe=never) as slow:
        workers = [{"id": "w0", "url": slow.url, "model": MODEL}, DEAD]
        async with observed(workers=workers, fleet={"probe_timeout_s": 60}) as gateway:
            async with gateway.client() as client:
                listed = [card.id for card in (await client.models.list()).data]
            assert listed == [MODEL, "gpt-4o-mini"]


async def test_a_model_whose_workers_are_down_is_known_and_said_to_be_back() -> None:
    async with observed(workers=[DEAD]) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=QUESTION)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert (await client.get("/health")).status_code == 200
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "no_worker")
            assert "retry-after" in ready.headers
            unknown = await client.post(COMPLETIONS, json={**QUESTION, "model": "nope"})
            assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "model")
        await gateway.ended("no_worker", "model_not_found", requests=0, tokens=0)


async def test_a_worker_that_comes_back_is_used_again() -> None:
    ill = False

    async def probe(request: Received, reply: Reply) -> None:
        await (reply.json({}, 500) if ill else answer_probe(request, reply))

    async with FakeWorker(probe=probe) as worker, observed(worker) as gateway, gateway.http() as client:
        ill = True
        await gateway.reaches(0, "gateway_worker_up")
        assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 503
        ill = False
        await gateway.reaches(1, "gateway_worker_up")
        assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200


async def test_an_unknown_model_raises_not_found_in_the_sdk_and_reaches_no_worker() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.client() as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.completions.create(model='no"such\nmodel', prompt="hi")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("nope")
        assert worker.requests == []
