"""What do all answers have in common? Headers and errors."""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

ERROR: Json = {
    "description": "OpenAI's error object, which its SDKs read.",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "For people. It says what to do."},
                "type": {"type": "string", "description": "The kind of error, or of the limit reached."},
                "param": {"type": ["string", "null"], "description": "The field at fault."},
                "code": {"type": "string", "description": "For programs. It stays as it is."},
            },
        }
    },
}


def _header(about: str, pattern: str, example: str) -> Json:
    schema = {"type": "string", "pattern": f"^(?:{pattern})$"}
    return {"description": about, "schema": schema, "example": example}


_DURATION = r"(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?s|\d+ms"
HEADERS: Json = {
    "x-request-id": _header(
        "The caller's own if it was sent and is plain, else a new one. Quote it when you report an error.",
        "[A-Za-z0-9._-]{1,64}",
        "5f1c0b8e0d6a4c3fb1f2a7d9e8c6b5a4",
    ),
    "openai-processing-ms": _header("Milliseconds in the gateway so far.", r"\d+", "12"),
    "cache-control": _header("Whether the answer may be kept.", "no-cache|no-store", "no-store"),
    "x-accel-buffering": _header("Tells nginx to pass a stream on as it comes.", "no", "no"),
    "www-authenticate": _header("How to send a key.", "Bearer", "Bearer"),
    "retry-after": _header("Whole seconds until the same can succeed.", r"[1-9]\d*", "3"),
    "retry-after-ms": _header("Milliseconds until then.", r"[1-9]\d*", "2400"),
    "x-should-retry": _header("false where repeating it cannot help.", "true|false", "false"),
    "x-gateway-worker": _header("The worker that answered.", "[A-Za-z0-9._-]{1,64}", "w0"),
    "x-gateway-bucket": _header("Index of the length bucket; 0 is the shortest.", r"\d+", "0"),
    "x-gateway-queue-ms": _header("Milliseconds in the queue.", r"\d+", "0"),
    "x-gateway-degraded": _header(
        "Only while the limits' store is away: what holds instead.", "local|closed|open", "local"
    ),
} | {
    f"x-ratelimit-{what}-{kind}": _header(about.format(kind=kind), pattern, example)
    for kind in ("requests", "tokens")
    for what, about, pattern, example in (
        ("limit", "The limit of {kind}, where there is one.", r"\d+", "600"),
        ("remaining", "What is left of it.", r"\d+", "599"),
        ("reset", "Until it is whole again, as Go writes durations.", _DURATION, "100ms"),
    )
}

ALWAYS = ("x-request-id", "openai-processing-ms")
ALSO = {
    401: ("www-authenticate",),
    429: ("retry-after", "retry-after-ms", "x-should-retry"),
    502: ("x-should-retry",),
    503: ("retry-after", "retry-after-ms", "x-should-retry"),
    504: ("x-should-retry",),
}
REFUSALS = {
    400: "The request is malformed, or a field of it is unknown, out of range or not allowed.",
    401: "The key is missing, unknown, expired or revoked.",
    403: "The key may not do that.",
    404: "There is no such thing, or not for this key.",
    408: "The body came to a halt.",
    409: "As things stand, that cannot be done.",
    413: "The body is too large.",
    415: "The body is compressed, or is no application/json.",
    429: "A limit of the caller's own is reached; `type` says which.",
    500: "A bug of the gateway.",
    502: "The worker failed before its answer began.",
    503: "Too busy, shutting down, without a worker, or without its store: `code` says which.",
    504: "The worker did not answer in time, and its work was stopped.",
}


def answer(about: str, content: Json, headers: Iterable[str] = ()) -> Json:
    """A response. content: schemas by media type. headers: further names from HEADERS."""
    return {
        "description": about,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in (*ALWAYS, *headers)},
        "content": {media_type: {"schema": schema} for media_type, schema in content.items()},
    }


def refusals(statuses: Iterable[int], headers: Iterable[str] = ()) -> dict[str, Json]:
    """Responses with an error object, by status."""
    content = {"application/json": {"$ref": "#/components/schemas/Error"}}
    return {
        str(status): answer(REFUSALS[status], content, (*headers, *ALSO.get(status, ())))
        for status in sorted(statuses)
    }
