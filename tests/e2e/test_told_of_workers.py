"""What is told of a worker's refusal or failure: to the SDK, over the wire, and to nobody but the log?"""

import asyncio
import json
from typing import Any

import h11
import openai
import pytest

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller
from tests.e2e.gates import TOKEN
from tests.e2e.observed import STEADY_PROBES, observed
from tests.fakes import FakeWorker, Received, Reply, framed, response_head

pytestmark = pytest.mark.usefixtures("either_lane")

NOBODY = "nobody.invalid"  # a name that is never looked up with success
INTERNALS = ("127.0.0.1", NOBODY, "traceback", "site-packages", "uvloop", "httptools", "errno", "gaierror")
CLASSES: list[tuple[int, type[openai.APIStatusError], int, str]] = [
    (400, openai.BadRequestError, 400, "as sent"),
    (404, openai.NotFoundError, 404, "as sent"),
    (413, openai.APIStatusError, 413, "as sent"),
    (422, openai.UnprocessableEntityError, 422, "as sent"),
    (429, openai.RateLimitError, 429, "as sent"),
    (500, openai.InternalServerError, 502, "worker_failed"),
    (503, openai.InternalServerError, 503, "server_is_overloaded"),
]


@pytest.mark.case("E1")
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_what_a_worker_refuses_raises_its_class_in_the_sdk(stream: bool) -> None:
    async def refuse(request: Received, reply: Reply) -> None:
        status = int(request.json()["user"])
        error = {"message": "no", "type": "Odd", "param": "x", "code": "as sent", "more": [status]}
        await reply.json({"object": "error", "error": error}, status)

    async with FakeWorker(refuse) as worker, observed(worker) as gateway, gateway.client() as client:
        for sent, kind, status, code in CLASSES:
            asked: dict[str, Any] = {**QUESTION, "user": str(sent), "stream": stream}
            with pytest.raises(openai.APIStatusError) as raised:
                await client.completions.create(**asked)
            error = raised.value
            assert type(error) is kind
            assert (error.status_code, error.code) == (status, code)
            assert error.response.headers["content-type"] == "application/json"
            assert (error.param == "x") is (code == "as sent")
            assert error.request_id


@pytest.mark.case("E2")
@pytest.mark.parametrize("body", [QUESTION, STREAMED], ids=["plain", "streamed"])
@pytest.mark.parametrize("framing", ["length", "chunked", "to the end"])
async def test_an_error_in_the_gateway_s_words_has_a_framing_of_its_own(framing: str, body: object) -> None:
    content = b"x" * 5000

    async def fail(request: Received, reply: Reply) -> None:
        own = {"length": {"content-length": "5000"}, "chunked": {"transfer-encoding": "chunked"}}
        head = {
            "content-type": "text/event-stream",
            "content-encoding": "gzip",
            "connection": "close, x-foo",
            "x-foo": "1",
            **own.get(framing, {}),
        }
        end = framed(content) + b"0\r\n\r\n" if framing == "chunked" else content
        await reply.send(response_head(500, head) + end)
        reply.close()

    async with FakeWorker(fail) as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.ask(body, headers={"connection": "close"})
        received = await caller.rest()
    parser = h11.Connection(h11.CLIENT)  # a strict reader
    parser.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("connection", "close")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(received)
    parser.receive_data(b"")
    head, data, end = parser.next_event(), parser.next_event(), parser.next_event()
    assert isinstance(head, h11.Response)
    assert isinstance(data, h11.Data)
    assert isinstance(end, h11.EndOfMessage)
    headers = dict(head.headers)
    assert head.status_code == 502
    assert json.loads(bytes(data.data))["error"]["code"] == "worker_failed"
    assert int(headers[b"content-length"]) == len(data.data)
    assert headers[b"content-type"] == b"application/json"
    assert not headers.keys() & {b"content-encoding", b"transfer-encoding", b"x-foo"}


@pytest.mark.case("E4")
async def test_a_stream_that_is_reset_tells_no_internals_and_its_id_finds_the_story() -> None:
    arrived = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await arrived.wait()
        reply.reset()

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with (
            gateway.http() as client,
            client.stream("POST", COMPLETIONS, json=STREAMED) as answer,
        ):
            lines = answer.aiter_lines()
            await anext(lines)
            arrived.set()
            rest = "".join([line async for line in lines])
            told = f"{answer.headers}{rest}".lower()
            identity = answer.headers["x-request-id"]
        assert "worker_failed" in rest
        assert identity in rest
        assert not [word for word in (*INTERNALS, str(worker.port)) if word in told]
        [line] = await gateway.idle_lines()
        assert line["request_id"] == identity
        assert str(worker.port) in line["detail"]


@pytest.mark.case("E4")
@pytest.mark.parametrize("body", [QUESTION, STREAMED], ids=["plain", "streamed"])
async def test_a_worker_whose_name_is_unknown_is_told_of_to_nobody(body: dict[str, Any]) -> None:
    async with FakeWorker() as worker:
        workers = [
            {"id": "w0", "url": worker.url, "model": MODEL},
            {"id": "w1", "url": f"http://{NOBODY}:8000", "model": "other"},
        ]
        models = [{"name": MODEL}, {"name": "other"}]
        async with observed(worker, models=models, workers=workers, fleet=STEADY_PROBES) as gateway:
            async with gateway.http() as client:
                answer = await client.post(COMPLETIONS, json={**body, "model": "other"})
            told = f"{answer.headers}{answer.text}".lower()
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker")
            assert not [word for word in (*INTERNALS, "8000") if word in told]
            [line] = await gateway.idle_lines()
            assert (line["request_id"], line["outcome"]) == (answer.headers["x-request-id"], "no_worker")
