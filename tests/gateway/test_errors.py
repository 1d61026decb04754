"""Is every error told in the words that the SDK reads, with the status that the contract gives it?"""

import pytest

from gateway import errors
from gateway.errors import (
    BadRequest,
    GatewayError,
    InternalError,
    MethodNotAllowed,
    RateLimited,
    Refused,
    RequestTimeout,
    Unauthorized,
    WorkerError,
    WorkerTimeout,
    WorkerUnreachable,
)

CONTRACT = {
    "BadRequest": (400, "invalid_request_error", "invalid_value"),
    "Unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "ModelNotAllowed": (403, "permission_denied", "model_not_allowed"),
    "ModelNotFound": (404, "invalid_request_error", "model_not_found"),
    "NotFound": (404, "invalid_request_error", "not_found"),
    "MethodNotAllowed": (405, "invalid_request_error", "method_not_allowed"),
    "UploadTooSlow": (408, "invalid_request_error", "request_timeout"),
    "Conflict": (409, "invalid_request_error", "conflict"),
    "BodyTooLarge": (413, "invalid_request_error", "body_too_large"),
    "UnsupportedMediaType": (415, "invalid_request_error", "unsupported_media_type"),
    "HeadTooLarge": (431, "invalid_request_error", "head_too_large"),
    "Overloaded": (503, "server_error", "server_is_overloaded"),
    "WorkerBusy": (503, "server_error", "server_is_overloaded"),
    "NoWorker": (503, "server_error", "no_worker"),
    "Draining": (503, "server_error", "draining"),
    "StoreUnavailable": (503, "server_error", "store_unavailable"),
    "WorkerUnreachable": (502, "server_error", "worker_failed"),
    "WorkerBroke": (502, "server_error", "worker_failed"),
    "WorkerFailed": (502, "server_error", "worker_failed"),
    "WorkerDeclined": (502, "server_error", "worker_failed"),
    "WorkerRefusedCredentials": (502, "server_error", "worker_refused_credentials"),
    "ConnectTimeout": (502, "server_error", "worker_failed"),
    "WorkerTimeout": (504, "server_error", "worker_timeout"),
    "FirstByteTimeout": (504, "server_error", "worker_timeout"),
    "GapTimeout": (504, "server_error", "worker_timeout"),
    "RequestTimeout": (504, "server_error", "worker_timeout"),
    "InternalError": (500, "server_error", "internal_error"),
}
LATE = {"connect_timeout", "first_byte_timeout", "gap_timeout"}
FAMILIES = {"GatewayError", "CallerError", "Refused", "WorkerError"}
MADE_OTHERWISE = {"RateLimited"}  # its type is the kind of the limit


def kinds() -> dict[str, type[GatewayError]]:
    found = vars(errors).items()
    return {name: kind for name, kind in found if isinstance(kind, type) and issubclass(kind, GatewayError)}


def test_the_contract_names_every_error_there_is() -> None:
    assert kinds().keys() == CONTRACT.keys() | FAMILIES | MADE_OTHERWISE


@pytest.mark.parametrize("name", CONTRACT)
def test_an_error_has_the_status_type_and_code_of_the_contract(name: str) -> None:
    kind = kinds()[name]
    assert (kind.status, kind.type, kind.code) == CONTRACT[name]


def test_the_body_is_an_error_object() -> None:
    error = BadRequest("Too many.", param="n", code="integer_above_max_value")
    assert error.body() == {
        "error": {
            "message": "Too many.",
            "type": "invalid_request_error",
            "param": "n",
            "code": "integer_above_max_value",
        }
    }
    assert str(error) == "Too many."


def test_one_error_with_a_code_of_its_own_leaves_the_next_alone() -> None:
    BadRequest("x", code="special")
    assert BadRequest("x").code == "invalid_value"


@pytest.mark.parametrize("kind", ["requests", "tokens", "concurrency", "queue_share"])
def test_a_limit_is_told_by_its_kind(kind: str) -> None:
    error = RateLimited(kind, "Wait.", retry_after_s=3)
    assert isinstance(error, Refused)
    assert (error.status, error.type, error.code) == (429, kind, "rate_limit_exceeded")
    assert (error.kind, error.retry_after_s, error.quotas) == (kind, 3, None)


@pytest.mark.parametrize("name", [name for name, kind in kinds().items() if issubclass(kind, WorkerError)])
def test_what_a_worker_said_is_for_the_log_and_not_for_the_caller(name: str) -> None:
    error = kinds()[name]("10.0.0.7:8000 secret")
    assert isinstance(error, WorkerError)
    assert error.detail == "10.0.0.7:8000 secret"
    assert "10.0.0.7" not in str(error.body())
    assert error.message.endswith(".")


def test_only_what_was_stopped_at_work_says_that_a_retry_cannot_help() -> None:
    assert WorkerTimeout("late").should_retry is False
    assert RequestTimeout(3600).should_retry is False
    assert WorkerUnreachable("gone").should_retry is None


def test_workers_failures_are_counted_apart() -> None:
    found = {kind.kind for kind in kinds().values() if issubclass(kind, WorkerError)}
    assert found == {"unreachable", "broke", "failed", "declined", "credentials", *LATE, "timeout"}


def test_every_wait_that_is_too_long_is_counted_as_what_it_is() -> None:
    found = {name: kind.outcome for name, kind in kinds().items() if kind.outcome}
    late = {name: kind for name, kind in kinds().items() if issubclass(kind, WorkerError) and kind.outcome}
    workers = {name: kind.kind for name, kind in late.items()}
    assert set(workers.values()) == LATE
    assert found == workers | {"UploadTooSlow": "upload_timeout", "RequestTimeout": "request_timeout"}


def test_a_bug_of_ours_says_nothing_of_itself() -> None:
    assert "request id" in InternalError().message
    assert InternalError().detail == ""


def test_a_refused_method_says_which_are_allowed() -> None:
    assert MethodNotAllowed("POST only.", "POST").allow == "POST"


def test_a_missing_key_says_how_to_send_one() -> None:
    assert "Authorization: Bearer" in Unauthorized().message
