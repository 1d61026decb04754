"""What can go wrong, and how a caller hears of it.

    GatewayError
    ├── CallerError            the request is at fault: 4xx
    │   ├── BadRequest 400, Unauthorized 401, ModelNotAllowed 403, ModelNotFound 404, NotFound 404,
    │   ├── MethodNotAllowed 405, UploadTooSlow 408, Conflict 409, BodyTooLarge 413,
    │   └── UnsupportedMediaType 415, HeadTooLarge 431
    ├── Refused                not now, come back: always says when
    │   ├── RateLimited 429    the tenant's own limit
    │   └── Overloaded, NoWorker, Draining, StoreUnavailable 503
    ├── WorkerError            the worker is at fault
    │   ├── WorkerUnreachable, WorkerBroke, WorkerFailed, WorkerRefusedCredentials 502
    │   └── WorkerTimeout 504  FirstByteTimeout, GapTimeout
    ├── RequestTimeout 504     nobody in particular is at fault
    └── InternalError 500      a bug of ours

Rooms raise; only the door renders. `code` is also the outcome under which a request is counted, unless it
has an `outcome` of its own: callers are told of every time-out alike, operators have to tell them apart.
Messages are read by callers: they never name a worker, an address or a key. What an operator needs
beside that goes into `detail`, which is logged.
"""

from typing import Any, ClassVar

from gateway.model import Quotas


class GatewayError(Exception):
    """Base of all; not raised itself."""

    status: ClassVar[int] = 500
    type: str = "server_error"
    code: str = "internal_error"
    outcome: ClassVar[str] = ""  # under which it is counted and logged; empty: its code

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        should_retry: bool | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code:
            self.code = code
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry
        self.detail = detail

    def body(self) -> dict[str, Any]:
        """The error object that OpenAI's SDKs read."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


class CallerError(GatewayError):
    type = "invalid_request_error"


class BadRequest(CallerError):
    status = 400
    code = "invalid_value"


class Unauthorized(CallerError):
    """One message for missing, unknown, expired and revoked keys, so that none can be told apart."""

    status = 401
    code = "invalid_api_key"

    def __init__(self) -> None:
        super().__init__(
            "Incorrect API key provided. Send a valid key as 'Authorization: Bearer <key>'; "
            "whoever runs this gateway issues them."
        )


class ModelNotAllowed(CallerError):
    status = 403
    type = "permission_denied"
    code = "model_not_allowed"


class ModelNotFound(CallerError):
    status = 404
    code = "model_not_found"


class NotFound(CallerError):
    status = 404
    code = "not_found"


class MethodNotAllowed(CallerError):
    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class UploadTooSlow(CallerError):
    status = 408
    code = "request_timeout"
    outcome = "upload_timeout"


class Conflict(CallerError):
    """Of the admin API: what is asked for cannot be, as things stand."""

    status = 409
    code = "conflict"


class BodyTooLarge(CallerError):
    status = 413
    code = "body_too_large"


class UnsupportedMediaType(CallerError):
    status = 415
    code = "unsupported_media_type"


class HeadTooLarge(CallerError):
    status = 431
    code = "head_too_large"


class Refused(GatewayError):
    """Not now. `retry_after_s` is when it can succeed, and is always sent."""


class RateLimited(Refused):
    """`kind`: requests, tokens, concurrency or queue_share. It is the `type` of the error object."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        self.kind = self.type = kind
        self.quotas: Quotas | None = None  # as they stood when it was refused


class Overloaded(Refused):
    status = 503
    code = "server_is_overloaded"


class WorkerBusy(Overloaded):
    """A worker says that it has enough to do. `kind` as that of a WorkerError."""

    kind: ClassVar[str] = "busy"

    def __init__(self, detail: str, retry_after_s: float = 1.0) -> None:
        super().__init__(
            "The model server is busy. Try again shortly.", retry_after_s=retry_after_s, detail=detail
        )


class NoWorker(Refused):
    status = 503
    code = "no_worker"


class Draining(Refused):
    status = 503
    code = "draining"


class StoreUnavailable(Refused):
    status = 503
    code = "store_unavailable"

    def __init__(
        self,
        message: str = "What this key's tenant may use cannot be looked up at the moment. Try again shortly.",
        **more: Any,
    ) -> None:
        super().__init__(message, **({"retry_after_s": 1.0} | more))


class WorkerError(GatewayError):
    """The worker's fault. `kind` is the label under which it is counted against the worker."""

    status = 502
    code = "worker_failed"
    kind: ClassVar[str] = "failed"

    def __init__(self, detail: str, **more: Any) -> None:
        super().__init__(self.public, detail=detail, **more)

    public: ClassVar[str] = "The model server failed while it worked on this request. Try again."


class WorkerUnreachable(WorkerError):
    """No connection came about, so the worker cannot have begun."""

    kind = "unreachable"
    public = "The model server could not be reached. Try again."


class WorkerBroke(WorkerError):
    """The connection ended, or the bytes on it were not HTTP, before the answer was complete."""

    kind = "broke"


class WorkerFailed(WorkerError):
    """It answered, with a failure of its own."""

    kind = "failed"


class WorkerDeclined(WorkerError):
    """It answered that it takes no more requests, because it ends: it has not begun."""

    kind = "declined"


class WorkerRefusedCredentials(WorkerError):
    code = "worker_refused_credentials"
    kind = "credentials"
    public = "The model server refused the gateway's own credentials. Tell whoever runs this gateway."


class ConnectTimeout(WorkerUnreachable):
    """It did not take the connection in time."""

    kind = outcome = "connect_timeout"


class WorkerTimeout(WorkerError):
    """The work may have begun and was stopped: repeating it would cost the GPU the same again."""

    status = 504
    code = "worker_timeout"
    kind = "timeout"
    public = "The model server did not answer in time. The work was stopped."

    def __init__(self, detail: str) -> None:
        super().__init__(detail, should_retry=False)


class FirstByteTimeout(WorkerTimeout):
    """Nothing of the answer came."""

    kind = outcome = "first_byte_timeout"


class GapTimeout(WorkerTimeout):
    """No more of the answer came."""

    kind = outcome = "gap_timeout"


class RequestTimeout(GatewayError):
    """The whole took too long, wherever it was. As for a WorkerTimeout, a retry would cost as much again."""

    status = 504
    code = "worker_timeout"
    outcome = "request_timeout"

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"This request was not complete within {limit_s:g} s, the limit here. It was stopped. "
            "Ask for fewer tokens at once.",
            should_retry=False,
        )


class InternalError(GatewayError):
    def __init__(self) -> None:
        super().__init__("The gateway met an error of its own. Quote the request id when you report it.")
