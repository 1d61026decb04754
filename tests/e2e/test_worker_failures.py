"""Does a caller hear of what a worker refuses or fails at as it should, and of nothing beside?"""

import json

import pytest

from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED
from tests.e2e.observed import STEADY_PROBES, observed
from tests.fakes import FakeWorker, Received, Reply, Script, response_head

pytestmark = pytest.mark.usefixtures("either_lane")

EITHER = pytest.mark.parametrize("body", [QUESTION, STREAMED], ids=["plain", "streamed"])
BODIES = [
    ("application/json", b'{ "error" : {"message":"no",  "type":"BadRequestError", "x": [1] ,"code":400}}\n'),
    ("application/json", b""),
    ("text/plain; charset=utf-8", "Néin".encode()),
]
SECRET = "http://10.0.0.7:8000/Traceback/site-packages"
INTERNALS = ("127.0.0.1", "10.0.0.7", "traceback", "site-packages", "uvloop", "httptools", "errno", ".py")


def answering(status: int, body: bytes, content_type: str = "application/json", **headers: str) -> Script:
    async def script(request: Received, reply: Reply) -> None:
        length = str(len(body))
        head = {"content-type": content_type, "content-length": length, **headers}
        await reply.send(response_head(status, head) + body)

    return script


def first_event(payload: bytes) -> Script:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(payload)
        await reply.done()

    return script


async def reset(request: Received, reply: Reply) -> None:
    reply.reset()


async def head_then_reset(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    reply.reset()


async def head_then_end(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.send(b"0\r\n\r\n")


async def silent(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def head_then_silence(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.peer_closed()


async def not_http(request: Received, reply: Reply) -> None:
    await reply.send(b"SSH-2.0-OpenSSH_9.6\r\n")


@pytest.mark.case("E1")
@EITHER
@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 429])
async def test_a_worker_s_own_refusal_arrives_byte_for_byte(body: object, status: int) -> None:
    scripts = [answering(status, content, kind) for kind, content in BODIES]
    async with FakeWorker(scripts) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            for kind, content in BODIES:
                answer = await client.post(COMPLETIONS, json=body)
                assert (answer.status_code, answer.headers["content-type"]) == (status, kind)
                assert answer.content == content
        await gateway.ended(*["worker_refused"] * 3, requests=0, tokens=0)
        assert len(worker.requests) == 3
        assert await gateway.metric("gateway_worker_failures_total") == 0


@pytest.mark.case("E4")
@pytest.mark.parametrize(("status", "body"), [(200, QUESTION), (200, STREAMED), (404, QUESTION)])
async def test_what_a_worker_s_headers_tell_of_itself_stays_behind(status: int, body: object) -> None:
    personal = {
        "server": "uvicorn", "date": "today", "location": SECRET, "set-cookie": "a=1", "alt-svc": "h3",
        "x-request-id": "the-worker-s", "endpoint-load-metrics": "JSON {}",
    }  # fmt: skip

    async def script(request: Received, reply: Reply) -> None:
        if request.json().get("stream"):
            await reply.stream_head(headers=personal)
            await reply.done()
        else:
            await reply.json({}, status, personal)

    async with FakeWorker(script) as worker, observed(worker) as gateway, gateway.http() as client:
        answer = await client.post(COMPLETIONS, json=body)
        assert answer.status_code == status
        assert not set(personal.items()) & set(answer.headers.items())
        assert not {"location", "set-cookie", "alt-svc", "endpoint-load-metrics"} & answer.headers.keys()


@pytest.mark.case("L4")
async def test_a_worker_s_own_retry_after_arrives() -> None:
    busy = answering(429, b"{}", **{"retry-after": "7"})
    async with FakeWorker(busy) as worker, observed(worker) as gateway, gateway.http() as client:
        assert (await client.post(COMPLETIONS, json=QUESTION)).headers["retry-after"] == "7"


@pytest.mark.case("E1", "E4")
@EITHER
@pytest.mark.parametrize("status", [301, 304, 307, 500, 501, 502, 504])
async def test_a_worker_s_own_failure_becomes_502_and_is_told_to_the_log_only(
    body: object, status: int
) -> None:
    content = b"" if status == 304 else json.dumps({"error": {"message": SECRET}}).encode()
    failing = answering(status, content, location=SECRET, **{"set-cookie": "worker=1"})
    async with FakeWorker(failing) as worker, FakeWorker() as other, observed(worker, other) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "worker_failed"
        assert answer.headers["content-type"] == "application/json"
        assert "10.0.0.7" not in f"{answer.headers}{answer.text}"
        assert not {"location", "set-cookie"} & answer.headers.keys()
        [line] = await gateway.ended("worker_failed", requests=0, tokens=0)
        assert str(status) in line["detail"]
        assert SECRET in line["detail"] or status == 304
        assert (len(worker.requests), len(other.requests)) == (1, 0)
        assert await gateway.metric("gateway_worker_failures_total", worker="w0", kind="failed") == 1


@pytest.mark.case("E1")
@EITHER
async def test_a_busy_worker_becomes_503_that_says_when_to_come_back(body: object) -> None:
    async with FakeWorker(answering(503, b'{"error":"scaling"}')) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.headers["retry-after-ms"].isdigit()
        [line] = await gateway.ended("server_is_overloaded", requests=0, tokens=0)
        assert "scaling" in line["detail"]
        assert len(worker.requests) == 1


@EITHER
@pytest.mark.parametrize("status", [401, 403])
async def test_credentials_that_a_worker_refuses_are_the_gateway_s_fault(body: object, status: int) -> None:
    async with (
        FakeWorker(answering(status, b'{"error":"Unauthorized"}')) as worker,
        observed(worker) as gateway,
    ):
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_refused_credentials")
        [line] = await gateway.ended("worker_refused_credentials", requests=0, tokens=0)
        assert str(status) in line["detail"]
        assert await gateway.metric("gateway_worker_failures_total", worker="w0", kind="credentials") == 1


@pytest.mark.case("E1")
@pytest.mark.parametrize("status", [400, 404, 429])
async def test_a_refusal_in_the_first_event_becomes_a_real_status(status: int) -> None:
    payload = b'{"error": {"message": "bad grammar", "type": "BadRequestError", "code": %d}}' % status
    async with FakeWorker(first_event(payload)) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert (answer.status_code, answer.content) == (status, payload)
        assert answer.headers["content-type"] == "application/json"
        await gateway.ended("worker_refused", requests=0, tokens=0)
        assert len(worker.requests) == 1


@pytest.mark.case("E1")
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"message": SECRET, "code": 500}, 502, "worker_failed"),
        ({"message": SECRET, "code": 503}, 503, "server_is_overloaded"),
        ({"message": SECRET, "code": "odd"}, 502, "worker_failed"),
        ({"message": SECRET}, 502, "worker_failed"),
        (SECRET, 502, "worker_failed"),
    ],
    ids=["500", "503", "a word for a code", "no code", "no object"],
)
async def test_a_failure_in_the_first_event_becomes_a_real_status(
    error: object, status: int, code: str
) -> None:
    payload = json.dumps({"error": error}).encode()
    async with FakeWorker(first_event(payload)) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert "10.0.0.7" not in answer.text
        [line] = await gateway.ended(code, requests=0, tokens=0)
        assert SECRET in line["detail"]
        assert len(worker.requests) == 1


@pytest.mark.case("L5")
@pytest.mark.parametrize(
    ("script", "body", "code"),
    [
        (reset, QUESTION, "worker_failed"),
        (reset, STREAMED, "worker_failed"),
        (head_then_reset, STREAMED, "worker_failed"),
        (head_then_end, STREAMED, "worker_failed"),
        (not_http, QUESTION, "worker_failed"),
        (silent, QUESTION, "worker_timeout"),
        (silent, STREAMED, "worker_timeout"),
        (head_then_silence, STREAMED, "worker_timeout"),
    ],
)
async def test_a_worker_that_fails_before_the_first_byte_is_not_asked_again_and_costs_nothing(
    script: Script, body: object, code: str
) -> None:
    hasty = {"first_byte_timeout_s": 0.2, "gap_timeout_s": 0.2}
    async with (
        FakeWorker(script) as worker,
        FakeWorker() as other,
        observed(worker, other, upstream=hasty) as gateway,
    ):
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert answer.json()["error"]["code"] == code
        assert answer.status_code == {"worker_failed": 502, "worker_timeout": 504}[code]
        assert answer.headers.get("x-should-retry") == ("false" if code == "worker_timeout" else None)
        if code == "worker_timeout":
            await worker.closed_by_peer(1)
        outcome = {"worker_failed": "worker_failed", "worker_timeout": "first_byte_timeout"}[code]
        [line] = await gateway.ended(outcome, requests=0, tokens=0)
        assert line["status"] == answer.status_code
        assert (len(worker.requests), len(other.requests)) == (1, 0)
        kind = {"worker_failed": ("broke", "failed"), "worker_timeout": ("first_byte_timeout",)}[code]
        failures = [await gateway.metric("gateway_worker_failures_total", kind=of) for of in kind]
        assert sum(failures) == 1


@pytest.mark.case("E4")
async def test_replies_tell_no_internals_and_their_id_finds_the_whole_story() -> None:
    async def half_a_stream(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "text": "a"}]})
        reply.close()

    scripts = [reset, head_then_end, not_http, silent, answering(307, b"", location=SECRET), half_a_stream]
    async with (
        FakeWorker(scripts) as worker,
        observed(worker, fleet=STEADY_PROBES, upstream={"first_byte_timeout_s": 0.2}) as gateway,
    ):
        async with gateway.http() as client:
            answers = [await client.post(COMPLETIONS, json=STREAMED) for _ in scripts]
            await worker.stop()
            answers.append(await client.post(COMPLETIONS, json=STREAMED))
        await gateway.idle()
        lines = {line["request_id"]: line for line in gateway.log_lines()}
        assert len(lines) == len(scripts) + 1
        for answer in answers:
            told = f"{answer.headers}{answer.text}".lower()
            assert not [word for word in (*INTERNALS, str(worker.port)) if word in told]
            assert "error" in answer.text
            assert lines[answer.headers["x-request-id"]]["detail"]
