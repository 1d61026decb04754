"""Do bodies pass both ways as they were written, whatever their form, and framed anew?"""

import asyncio
import hashlib
import json
from typing import Any

import h11
import pytest

from tests.conftest import MODEL
from tests.e2e.callers import CHAT, COMPLETIONS, COST, QUESTION, STREAMED, Caller
from tests.e2e.observed import observed
from tests.fakes import FakeWorker, Received, Reply, compact, framed, plain_answer, response_head, sse_event

pytestmark = pytest.mark.usefixtures("either_lane")

MESSAGES = [{"role": "user", "content": "hi"}]
ODD = (
    b'{ "model" : "smollm2",\n\t"prompt":"caf\\u00e9 \xe6\x97\xa5", "max_tokens":8,'
    b'"seed":18446744073709551616,'
    b'"x":1, "x":2, "temperature":0.10000000000000000001, "nested":{"a":[null,[],{}],"b":{"c":{"d":1e400}}},'
    b'"chat_template_kwargs":{"enable_thinking":false},"structured_outputs":{"regex":"a{1,3}"},'
    b'"repetition_penalty":1.05,"top_k":20,"min_p":0.0,"stop_token_ids":[1,2],"invented":{"deep":[1]}}  \n'
)


@pytest.mark.case("B1")
@pytest.mark.parametrize("body", [ODD, b'{"model":"smollm2","prompt":[1],"max_tokens":8}'])
async def test_the_worker_gets_the_caller_s_bytes_and_members_after_them(body: bytes) -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.ask(body)
        assert (await caller.answer())[0] == 200
        [request] = worker.requests
    kept = body[: body.rindex(b"}")]
    assert request.body.startswith(kept + b',"')
    assert request.body.endswith(body[body.rindex(b"}") :])
    added = json.loads(b"{" + request.body[len(kept) + 1 : -len(body[len(kept) :])] + b"}")
    assert added.keys() == {"cache_salt"}
    assert request.json() == {**json.loads(body), **added}


async def test_what_the_worker_is_told_beside_replaces_what_a_caller_may_not_set() -> None:
    forbidden = {
        "priority": -5, "request_id": "mine", "cache_salt": "mine", "kv_transfer_params": {"a": 1},
        "ec_transfer_params": {"a": 1}, "vllm_xargs": {"a": 1}, "session_id": "mine",
    }  # fmt: skip
    asked = {**STREAMED, **forbidden, "model": "gpt-4o-mini", "base_url": "http://evil", "api_key": "k"}
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.http() as client:
        headers = {"x-vllm-priority": "-1", "x-session-id": "1", "x-forwarded-host": "evil"}
        await client.post(COMPLETIONS, json=asked, headers=headers)
        [request] = worker.requests
        told = request.json()
    assert told["model"] == MODEL
    assert (told["priority"], told["stream_options"]) == (0, {"include_usage": True})
    assert told["request_id"] != "mine"
    assert len(told["cache_salt"]) == 64
    assert [told[name] for name in list(forbidden)[3:]] == [None] * 4
    assert not headers.keys() & request.headers.keys()
    assert "authorization" not in request.headers
    assert request.headers["host"] == f"127.0.0.1:{worker.port}"


FORMS: list[tuple[str, dict[str, Any], int]] = [
    (COMPLETIONS, {"prompt": "five words are not much"}, 0),
    (COMPLETIONS, {"prompt": ""}, 0),
    (COMPLETIONS, {"prompt": ["one", "two"]}, 0),
    (COMPLETIONS, {"prompt": [1, 2, 3]}, 0),
    (COMPLETIONS, {"prompt": [[1, 2], [3]]}, 0),
    (COMPLETIONS, {"prompt": [1] * 1023}, 0),
    (COMPLETIONS, {"prompt": [1] * 1024}, 1),
    (COMPLETIONS, {"prompt": [1] * 5000}, 1),
    (COMPLETIONS, {"prompt": "word " * 8000}, 2),
    (CHAT, {"messages": MESSAGES}, 0),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, 0),
    (
        CHAT,
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "five words about this image"},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000},
                        },
                    ],
                }
            ]
        },
        0,
    ),
    (
        CHAT,
        {
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
                {"role": "tool", "content": "42", "tool_call_id": "1"},
            ]
        },
        0,
    ),
    (CHAT, {"messages": [{"role": "user"}], "tools": [{"type": "function"}]}, 0),
]


@pytest.mark.case("B2")
async def test_every_legal_form_of_prompt_is_served_unchanged_and_in_its_bucket() -> None:
    models = [{"name": MODEL, "max_model_len": 32768}]
    async with FakeWorker() as worker, observed(worker, models=models) as gateway, gateway.http() as client:
        for path, form, bucket in FORMS:
            answer = await client.post(path, json={"model": MODEL, "max_tokens": 8, **form})
            assert (answer.status_code, answer.headers["x-gateway-bucket"]) == (200, str(bucket))
            sent = worker.requests[-1].json()
            assert {name: sent[name] for name in form} == form


WRONG: list[tuple[str, bytes, str, str | None]] = [
    (COMPLETIONS, b"", "invalid_json", None),
    (COMPLETIONS, b"{", "invalid_json", None),
    (COMPLETIONS, b"[]", "invalid_type", None),
    (COMPLETIONS, b'{"prompt":"\xff"}', "invalid_json", None),
    (COMPLETIONS, b'{"model":"smollm2","prompt":"hi","x":' + b"[" * 100_000, "invalid_json", None),
    (COMPLETIONS, b'{"prompt":"hi"}', "missing_required_parameter", "model"),
    (COMPLETIONS, b'{"model":null,"prompt":"hi"}', "invalid_type", "model"),
    (COMPLETIONS, b'{"model":7,"prompt":"hi"}', "invalid_type", "model"),
    (COMPLETIONS, b'{"model":"","prompt":"hi"}', "invalid_value", "model"),
    (COMPLETIONS, b'{"model":"smollm2"}', "missing_required_parameter", "prompt"),
    (COMPLETIONS, b'{"model":"smollm2","prompt":"hi","n":99}', "invalid_value", "n"),
    (
        COMPLETIONS,
        b'{"model":"smollm2","prompt":"hi","guided_json":{}}',
        "unsupported_parameter",
        "guided_json",
    ),
    (CHAT, b'{"model":"smollm2"}', "missing_required_parameter", "messages"),
    (CHAT, b'{"model":"smollm2","messages":[]}', "invalid_value", "messages"),
]


async def test_every_wrong_body_is_refused_by_name_and_reaches_no_worker() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            for path, body, code, param in WRONG:
                answer = await client.post(path, content=body, headers={"content-type": "application/json"})
                error = answer.json()["error"]
                assert (answer.status_code, error["code"], error["param"]) == (400, code, param), body[:80]
        await gateway.ended(*[code for _, _, code, _ in WRONG], requests=0, tokens=0)
        assert worker.requests == []


@pytest.mark.case("B1")
async def test_what_a_worker_adds_to_its_answer_arrives_byte_for_byte() -> None:
    content = b'{"id":"1", "choices":[ {"text":"a","stop_reason":null,"x":18446744073709551616}],\n"y":{}}'

    async def script(request: Received, reply: Reply) -> None:
        if request.json().get("stream"):
            await reply.stream_head(headers={"x-extra": "kept"})
            await reply.event(content.replace(b"\n", b""))
            await reply.done()
        else:
            head = {
                "content-type": "application/json",
                "content-length": str(len(content)),
                "x-extra": "kept",
            }
            await reply.send(response_head(200, head) + content)

    async with FakeWorker(script) as worker, observed(worker) as gateway, gateway.http() as client:
        plain = await client.post(COMPLETIONS, json=QUESTION)
        streamed = await client.post(COMPLETIONS, json=STREAMED)
    assert plain.content == content
    assert streamed.content == sse_event(content.replace(b"\n", b"")) + sse_event(b"[DONE]")
    assert (plain.headers["x-extra"], streamed.headers["x-extra"]) == ("kept", "kept")


ANSWER = compact({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 8}})
PERSONAL = {"connection": "x-foo, keep-alive", "x-foo": "1", "keep-alive": "timeout=5", "te": "trailers"}


@pytest.mark.case("E2")
@pytest.mark.parametrize("framing", ["length", "chunked", "to the end"])
async def test_answers_are_framed_anew_without_the_worker_s_own_headers(framing: str) -> None:
    async def script(request: Received, reply: Reply) -> None:
        own = {"length": {"content-length": str(len(ANSWER))}, "chunked": {"transfer-encoding": "chunked"}}
        head = {"content-type": "application/json", "x-kept": "1", **PERSONAL, **own.get(framing, {})}
        if framing == "to the end":
            head["connection"] = "x-foo, close"
        await reply.send(response_head(200, head))
        await reply.send(
            framed(ANSWER[:9]) + framed(ANSWER[9:]) + b"0\r\n\r\n" if framing == "chunked" else ANSWER
        )
        if framing == "to the end":
            reply.close()

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(QUESTION, headers={"connection": "close"})
            content = await caller.rest()
        parser = h11.Connection(h11.CLIENT)  # a strict reader
        parser.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("connection", "close")]))
        parser.send(h11.EndOfMessage())
        parser.receive_data(content)
        parser.receive_data(b"")
        head = parser.next_event()
        assert isinstance(head, h11.Response)
        body = b""
        while isinstance(event := parser.next_event(), h11.Data):
            body += event.data
        assert isinstance(event, h11.EndOfMessage)
        assert body == ANSWER
        headers = {name.decode(): value.decode() for name, value in head.headers}
        assert headers["x-kept"] == "1"
        assert not headers.keys() & {"x-foo", "keep-alive", "te"}
        assert ("content-length" in headers) != ("transfer-encoding" in headers)
        await gateway.ended("ok", requests=1, tokens=COST)


@pytest.mark.case("B3")
async def test_a_large_body_arrives_whole_beside_a_running_stream() -> None:
    body = compact({**QUESTION, "prompt": "x" * 10_000_000, "max_tokens": 1})
    taken = asyncio.Event()

    async def stream(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(20):
            await reply.event({"choices": [{"index": 0, "text": "a"}]})
            await taken.wait()
            taken.clear()
        await reply.done()

    async def answer(request: Received, reply: Reply) -> None:
        await (stream if request.json().get("stream") else plain_answer)(request, reply)

    models = [{"name": MODEL, "max_model_len": 32768}]
    limits = {"tenants": [{"id": "acme"}]}
    async with (
        FakeWorker(answer) as worker,
        observed(worker, models=models, **limits) as gateway,
        gateway.http() as client,
    ):
        large = asyncio.create_task(
            client.post(COMPLETIONS, content=body, headers={"content-type": "application/json"})
        )
        async with client.stream("POST", COMPLETIONS, json=STREAMED) as streamed:
            async for line in streamed.aiter_lines():
                if line:
                    taken.set()
        assert (await large).status_code == 200
        [request] = [request for request in worker.requests if len(request.body) > 1000]
        assert hashlib.sha256(request.body[: len(body) - 1]).digest() == hashlib.sha256(body[:-1]).digest()
