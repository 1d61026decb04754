"""What does the public port offer? As data; a test compares it with the routes and with what is read."""

from typing import Any

from gateway.openapi.document import Api, Described, document
from gateway.openapi.parts import answer, refusals

Json = dict[str, Any]

ERASED = (
    "cache_salt", "ec_transfer_params", "kv_transfer_params", "media_io_kwargs", "mm_processor_kwargs",
    "priority", "prompt_embeds", "request_id", "session_id", "vllm_xargs",
)  # fmt: skip
REFUSED = (
    "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex",
    "guided_whitespace_pattern", "use_beam_search",
)  # fmt: skip

_API = Api(
    title="vllm-gateway",
    about=(
        "OpenAI's API in front of vLLM workers. Fields that are not described here reach the worker as they "
        "are. HEAD is answered wherever GET is. Other methods get 405 with `allow`, other paths 404; a head "
        "that is no HTTP/1.1 gets 400, one that is too large 431, each with an error object. After the first "
        'byte of a stream a failure is one event `data: {"error": ...}` and the end, without `[DONE]`.'
    ),
    key="A key of a tenant. Whoever runs the gateway issues it.",
    servers=[
        {
            "url": "{origin}",
            "description": "Wherever the public port is reached.",
            "variables": {"origin": {"default": "http://127.0.0.1:8080"}},
        }
    ],
)

_LIMITS = (
    *(
        f"x-ratelimit-{what}-{of}"
        for of in ("requests", "tokens")
        for what in ("limit", "remaining", "reset")
    ),
    "x-gateway-degraded",
)
_WORK = ("x-gateway-worker", "x-gateway-bucket", "x-gateway-queue-ms")

_BODY: Json = {
    "model": {"type": "string", "description": "A name or alias from GET /v1/models."},
    "stream": {"type": ["boolean", "null"], "description": "Answer with events as tokens come."},
    "stream_options": {
        "type": ["object", "null"],
        "description": "Only with stream.",
        "properties": {
            "include_usage": {
                "type": ["boolean", "null"],
                "description": "End the stream with an event of the tokens used.",
            }
        },
    },
    "n": {
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "How many answers; each costs its tokens.",
    },
    "best_of": {"type": ["integer", "null"], "description": "1, or as n."},
    "max_tokens": {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "Most tokens of one answer. It is lowered to what the model and the tenant allow.",
    },
    "prompt_logprobs": {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "If the gateway allows it.",
    },
    "truncate_prompt_tokens": {
        "type": ["integer", "null"],
        "description": "Keep only the last tokens of the prompt.",
    },
    "response_format": {"type": ["object", "null"], "description": "At most 500 levels deep."},
    "structured_outputs": {"type": ["object", "null"], "description": "At most 500 levels deep."},
}
_CHAT_BODY: Json = _BODY | {
    "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}},
    "max_completion_tokens": {
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "As max_tokens, and goes before it.",
    },
    "logprobs": {"type": ["boolean", "null"], "description": "If the tenant may ask for them."},
    "top_logprobs": {"type": ["integer", "null"], "minimum": 0, "description": "With logprobs."},
    "tools": {"type": ["array", "null"], "description": "They count as part of the prompt."},
    "documents": {"type": ["array", "null"], "description": "They count as part of the prompt."},
    "chat_template": {"type": ["string", "null"], "description": "Ignored unless the tenant may send one."},
    "chat_template_kwargs": {"type": ["object", "null"], "description": "They count as part of the prompt."},
}
_COMPLETION_BODY: Json = _BODY | {
    "prompt": {
        "description": "One prompt or several, each as text or as token ids.",
        "anyOf": [
            {"type": "string"},
            {"type": "array", "minItems": 1, "items": {"type": "string"}},
            {"type": "array", "minItems": 1, "items": {"type": "integer"}},
            {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "integer"}}},
        ],
    },
    "echo": {"type": ["boolean", "null"], "description": "Begin the answer with the prompt."},
    "logprobs": {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "Of so many alternatives, if the tenant may ask for them.",
    },
}


def _record(about: str, required: str, **properties: Json) -> Json:
    """An object that may have further fields."""
    return {
        "description": about,
        "type": "object",
        "required": required.split(),
        "properties": properties,
    }


_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_IGNORED = f"Set by the gateway, whatever is sent: {', '.join(ERASED)}."
_UNREAD = f"Refused: {', '.join(REFUSED)}."

_SCHEMAS: Json = {
    "ChatRequest": _record(f"{_IGNORED} {_UNREAD}", "model messages", **_CHAT_BODY),
    "CompletionRequest": _record(f"{_IGNORED} {_UNREAD}", "model prompt", **_COMPLETION_BODY),
    "Message": _record(
        "One turn. Media are data: addresses, or http(s) ones if the tenant may name them.",
        "role",
        role=_TEXT,
        content={"type": ["string", "array", "null"], "items": {"type": ["object", "string"]}},
        name={"type": ["string", "null"]},
    ),
    "Answer": _record(
        "The worker's own object, unchanged.",
        "id object created model choices",
        id=_TEXT,
        object={"enum": ["chat.completion", "text_completion"]},
        created=_COUNT,
        model=_TEXT,
        choices={"type": "array", "items": {"type": "object"}},
        usage=_record("Tokens.", "prompt_tokens total_tokens", prompt_tokens=_COUNT, total_tokens=_COUNT),
    ),
    "Model": _record(
        "What a caller may name as model.",
        "id object created owned_by max_model_len",
        id=_TEXT,
        object={"const": "model"},
        created=_COUNT | {"description": "Seconds since 1970."},
        owned_by=_TEXT,
        max_model_len={
            "type": ["integer", "null"],
            "description": "Prompt and output, in tokens. null: not known yet.",
        },
        parent=_TEXT | {"description": "Of an adapter: the model that it adapts."},
    ),
    "ModelList": _record(
        "All that this key may use, aliases included.",
        "object data",
        object={"const": "list"},
        data={"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
    ),
    "Status": _record("That it is so.", "status", status={"enum": ["alive", "ready"]}),
}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _work(path: str, name: str, summary: str, takes: str) -> Described:
    """A call that reaches a worker."""
    stream = {"type": "string", "description": "Server-sent events, the last of them `data: [DONE]`."}
    whole = answer(
        "The answer, whole or as a stream.",
        {"application/json": _ref("Answer"), "text/event-stream": stream},
        (*_LIMITS, *_WORK, "cache-control", "x-accel-buffering"),
    )
    own = answer("The worker's own refusal, as it sent it.", {"application/json": {}}, (*_LIMITS, *_WORK))
    statuses = (400, 401, 403, 404, 408, 413, 415, 429, 500, 502, 503, 504)
    answers = {"200": whole} | refusals(statuses, (*_LIMITS, *_WORK)) | {"4XX": own}
    body = {"required": True, "content": {"application/json": {"schema": _ref(takes)}}}
    return Described("POST", path, name, summary, answers, body=body)


def _page(
    path: str, name: str, summary: str, gives: str, statuses: tuple[int, ...], **more: Any
) -> Described:
    limits = () if more.get("needs_key") is False else _LIMITS
    answers = {"200": answer(summary, {"application/json": _ref(gives)}, limits)} | refusals(statuses, limits)
    return Described("GET", path, name, summary, answers, **more)


_NAME: Json = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Its slashes may be sent as they are.",
    "schema": _TEXT,
}
OPERATIONS = (
    _work("/v1/chat/completions", "createChatCompletion", "Answer a conversation.", "ChatRequest"),
    _work("/v1/completions", "createCompletion", "Continue a text.", "CompletionRequest"),
    _page("/v1/models", "listModels", "The models that this key may use.", "ModelList", (401, 500, 503)),
    _page(
        "/v1/models/{name}",
        "retrieveModel",
        "One model.",
        "Model",
        (401, 404, 500, 503),
        parameters=[_NAME],
    ),
    _page("/health", "isAlive", "Whether the process lives.", "Status", (500,), needs_key=False),
    _page("/ready", "isReady", "Whether requests can be served.", "Status", (500, 503), needs_key=False),
)


def public_document() -> Json:
    """The public port's document."""
    return document(_API, OPERATIONS, _SCHEMAS)
