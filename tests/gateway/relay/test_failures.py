"""Does a worker's failure reach its caller in words of ours, and a refusal of its own as that?"""

import json

import pytest

from gateway.errors import WorkerBusy, WorkerDeclined, WorkerFailed, WorkerRefusedCredentials
from gateway.model import Headers
from gateway.relay.failures import MAX_DETAIL_BYTES, MAX_REFUSAL_BYTES, shown, status_of, worker_failure
from tests.gateway.relay.relaying import JSON, SSE, Run, ScriptedAnswer, error_event


@pytest.mark.parametrize("status", [400, 404, 422, 429])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("has_length", [True, False])
async def test_a_workers_own_refusal_passes_as_it_is(status: int, streamed: bool, has_length: bool) -> None:
    body = b'{"error":{"message":"too long"},"usage":{"prompt_tokens":7}}'
    headers = (JSON, (b"retry-after", b"7"))
    answer = ScriptedAnswer([body], status, headers, len(body) if has_length else None)
    ran = await Run(answer, stream=streamed).run()
    assert (ran.caller.status, ran.caller.body, ran.caller.headers) == (status, body, list(headers))
    assert (ran.trip.outcome, ran.trip.usage) == ("worker_refused", None)


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_ours_and_not_the_callers(status: int) -> None:
    ran = Run(ScriptedAnswer([b"secret"], status))
    error = await ran.fails(WorkerRefusedCredentials)
    assert error.detail == f"the worker answered {status}; check its api_key_env"
    assert ran.caller.status == 0


@pytest.mark.parametrize("status", [500, 502, 504, 302, 304])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_workers_own_failure_is_for_the_log(status: int, streamed: bool) -> None:
    ran = Run(ScriptedAnswer([b"Trace", b"back"], status, (SSE,)), stream=streamed)
    error = await ran.fails(WorkerFailed)
    assert error.detail == f"the worker answered {status}: Traceback"
    assert "Traceback" not in error.message
    assert (ran.caller.status, ran.watching.heard_nothing) == (0, True)


@pytest.mark.parametrize(
    ("told", "retry_after_s"),
    [("", 1), ("7", 7), ("0", 1), ("61", 60), ("123456", 1), ("soon", 1), ("-3", 1), ("1.5", 1)],
)
async def test_a_worker_that_is_full_says_to_come_back(told: str, retry_after_s: float) -> None:
    headers = ((b"retry-after", told.encode()),) if told else ()
    error = await Run(ScriptedAnswer([b"busy"], 503, headers)).fails(WorkerBusy)
    assert (error.retry_after_s, error.detail) == (retry_after_s, "the worker answered 503: busy")


async def test_no_more_of_a_failure_is_read_than_the_log_takes() -> None:
    answer = ScriptedAnswer([b"x" * 1500, b"\xff" * 1500, b"never read"], 500)
    error = await Run(answer).fails(WorkerFailed)
    assert answer.reads == [b"never read"]
    assert error.detail == "the worker answered 500: " + "x" * 1500 + "\ufffd" * 500


def test_a_failure_is_an_overload_if_the_worker_says_that_it_is_full() -> None:
    assert type(worker_failure(503, b"")) is WorkerBusy
    assert type(worker_failure(500, b"")) is WorkerFailed


def test_a_worker_that_ends_has_not_begun() -> None:
    text = b'{"error":{"message":"cannot schedule new futures after shutdown"}}'
    assert type(worker_failure(500, text)) is WorkerDeclined


def test_what_is_shown_is_text_and_bounded() -> None:
    assert shown("é".encode() + b"\xff" + b"x" * MAX_DETAIL_BYTES) == "é\ufffd" + "x" * (MAX_DETAIL_BYTES - 3)


@pytest.mark.parametrize("code", [400, 404, 429, 499, 500, 503, 599])
def test_the_status_of_an_error_is_the_one_it_names(code: int) -> None:
    assert status_of(error_event(code)[6:-2]) == code


@pytest.mark.parametrize("code", ["BadRequestError", "400", None, 200, 399, 600, -1, 1.5, [400]])
def test_an_error_that_names_none_is_a_bad_gateway(code: object) -> None:
    assert status_of(error_event(code)[6:-2]) == 502


@pytest.mark.parametrize("payload", [b'{"error":"boom"}', b"{}", b"{", b"", b"\xff"])
def test_so_is_what_is_no_error_object(payload: bytes) -> None:
    assert status_of(payload) == 502


# Where heartbeats have begun the stream


def begun(*reads: bytes, status: int = 400, headers: Headers = (JSON,)) -> Run:
    ran = Run(ScriptedAnswer(reads, status, headers), stream=True)
    ran.caller.started = True
    return ran


async def test_a_refusal_in_a_stream_is_whole() -> None:
    ran = await begun(b'{"error":{"message":"too', b' long","code":400}}').run()
    assert (ran.caller.is_reply, ran.caller.body) == (True, b'{"error":{"message":"too long","code":400}}')
    assert (ran.trip.outcome, ran.caller.headers) == ("worker_refused", [JSON])


@pytest.mark.parametrize(
    "text", [b"", b"<html>too large</html>", b'{"detail":"too large"}', b'{"error":"large"}']
)
async def test_a_refusal_in_a_stream_that_is_no_error_object_becomes_one(text: bytes) -> None:
    ran = await begun(text, status=413, headers=()).run()
    error = json.loads(ran.caller.body)["error"]
    assert error == {
        "message": text.decode(), "type": "invalid_request_error", "param": None, "code": "413"
    }  # fmt: skip
    assert ran.trip.outcome == "worker_refused"


async def test_no_more_of_a_refusal_in_a_stream_is_read_than_an_error_object_has() -> None:
    ran = begun(b"x" * (MAX_REFUSAL_BYTES - 1), b"y", b"never read")
    await ran.run()
    assert json.loads(ran.caller.body)["error"]["message"] == "x" * MAX_DETAIL_BYTES
    assert isinstance(ran.answer, ScriptedAnswer)
    assert ran.answer.reads == [b"never read"]


async def test_an_answer_that_is_no_stream_is_a_failure_in_one() -> None:
    error = await begun(b'{"choices":[]}', status=200).fails(WorkerFailed)
    assert error.detail == "it answered a request for a stream, and it was none"


async def test_a_refusal_in_the_first_event_of_a_begun_stream_is_told_too() -> None:
    ran = begun(error_event(404), status=200, headers=(SSE,))
    await ran.run()
    assert json.loads(ran.caller.body)["error"]["code"] == 404
    assert ran.trip.outcome == "worker_refused"
