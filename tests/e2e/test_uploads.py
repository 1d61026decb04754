"""Are uploads bounded, read in whatever way they are sent, and refused so that the refusal arrives?"""

import json

import pytest

from tests.e2e.callers import COMPLETIONS, QUESTION, Caller, head_of
from tests.e2e.observed import observed
from tests.fakes import FakeWorker, compact, framed

pytestmark = pytest.mark.usefixtures("either_lane")


@pytest.mark.case("B3")
async def test_a_body_over_the_limit_is_refused_by_its_stated_length() -> None:
    async with FakeWorker() as worker, observed(worker, server={"max_body_bytes": 4096}) as gateway:
        async with Caller(gateway.url) as caller:
            caller.say(head_of(COMPLETIONS, {"content-length": "4097"}))
            status, _, body = await caller.answer()  # before a byte of it has been sent
            assert (status, json.loads(body)["error"]["code"]) == (413, "body_too_large")
            assert "4096" in json.loads(body)["error"]["message"]
        await gateway.ended("body_too_large", requests=0, tokens=0)


@pytest.mark.case("B3")
async def test_a_body_over_the_limit_is_refused_while_it_is_read_if_it_states_no_length() -> None:
    async with FakeWorker() as worker, observed(worker, server={"max_body_bytes": 4096}) as gateway:
        async with Caller(gateway.url) as caller:
            caller.say(head_of(COMPLETIONS, {"transfer-encoding": "chunked"}) + framed(b" " * 4000))
            caller.say(framed(b" " * 97))
            status, _, body = await caller.answer()
            assert (status, json.loads(body)["error"]["code"]) == (413, "body_too_large")
        await gateway.ended("body_too_large", requests=0, tokens=0)
        assert worker.requests == []


async def test_a_body_sent_in_chunks_is_served() -> None:
    content = compact(QUESTION)
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.say(head_of(COMPLETIONS, {"transfer-encoding": "chunked"}))
        for part in (content[:5], content[5:]):
            caller.say(framed(part))
        caller.say(b"0\r\n\r\n")
        assert (await caller.answer())[0] == 200
        assert worker.requests[0].headers["content-length"] == str(len(worker.requests[0].body))


async def test_a_caller_who_waits_for_permission_to_upload_gets_it() -> None:
    content = compact(QUESTION)
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        length = {"content-length": str(len(content)), "expect": "100-continue"}
        caller.say(head_of(COMPLETIONS, length))
        assert await caller.head() == (100, {})
        caller.say(content)
        assert (await caller.answer())[0] == 200


@pytest.mark.parametrize(
    "headers",
    [{"content-type": "text/plain"}, {"content-type": ""}, {"content-encoding": "gzip"}],
    ids=["text", "no type", "compressed"],
)
async def test_what_is_not_plain_json_is_refused_by_type(headers: dict[str, str]) -> None:
    async with FakeWorker() as worker, observed(worker) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(QUESTION, headers=headers)
            status, _, body = await caller.answer()
            assert (status, json.loads(body)["error"]["code"]) == (415, "unsupported_media_type")
        await gateway.ended("unsupported_media_type", requests=0, tokens=0)


async def test_a_refused_upload_leaves_the_connection_usable() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.ask({**QUESTION, "prompt": "x" * 100_000}, headers={"content-type": "text/plain"})
        assert (await caller.answer())[0] == 415
        caller.ask(QUESTION)
        assert (await caller.answer())[0] == 200
