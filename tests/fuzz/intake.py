"""Does a body that is taken mean to the worker what it meant to us, and are all others refused?"""

import json
from typing import Any

from gateway.errors import BadRequest, ModelNotFound
from gateway.intake.output import COMPLETION_DEFAULT_TOKENS, UNKNOWN_TOKENS
from gateway.model import Caller, Endpoint, Incoming, Job, Model
from tests.gateway.intake.samples import ALIASES, MODELS, SALT, appended, caller, intake, sent

WORDS = (
    b'{"model":"small","messages":[{"role":"user","content":"Hi"}]}',
    b'{"model":"small","prompt":"Once"}',
    b'"model":"small",',
    b'"model":"gpt-4o-mini",',
    b'"stream":true,',
    b'"stream_options":{"include_usage":true},',
    b'"max_tokens":1,',
    b'"max_completion_tokens":2,',
    b'"n":2,',
    b'"priority":-1,',
    b'"request_id":"r",',
    b'"cache_salt":"s",',
    b'"prompt":["a","b"],',
    b'"prompt":[[1,2],[3]],',
    b'{"type":"image_url","image_url":{"url":"http://h/"}},',
    b"\\u005f",
    b"\\ud800",
    b"\xed\xa0\x80",
    b"NaN",
    b"1e999",
    b"18446744073709551616",
    b"null",
    b"[[[[",
    b"}",
)

DEFAULTS = {"priority": {None, "0"}, "request_id": {None, "req-1"}}  # of what nobody may set
ERASED = {
    "priority",
    "request_id",
    "session_id",
    "kv_transfer_params",
    "ec_transfer_params",
    "vllm_xargs",
    "prompt_embeds",
    "mm_processor_kwargs",
    "media_io_kwargs",
}
PERMISSIONS = {"allow_chat_template", "allow_media_urls", "allow_logprobs", "allow_prompt_logprobs"}
PLACES = ("image_url", "audio_url", "video_url")


class Number(str):
    """As it is written: nothing is rounded."""

    __slots__ = ()


def check(data: bytes) -> None:
    """Raises AssertionError. Tried by a tenant who may little, and by one who may all but is capped."""
    for endpoint in Endpoint:
        _check(data, endpoint, caller(), may_all=False)
        _check(data, endpoint, caller(max_output_tokens=50), may_all=True)


def _check(data: bytes, endpoint: Endpoint, of: Caller, may_all: bool) -> None:
    rules: dict[str, Any] = dict.fromkeys(PERMISSIONS, may_all)
    try:
        job = intake(chains=True, **rules).read(Incoming("req-1", endpoint, {}), data, of)
    except (BadRequest, ModelNotFound):
        return
    try:
        asked, told = _read(data), _read(sent(job))
    except RecursionError:
        return  # the worker refuses it, as deep as it is
    added = _read(json.dumps(appended(data, job)).encode())
    assert told == asked | added
    model = MODELS[ALIASES.get(asked["model"], asked["model"])]
    assert told["model"] == job.model == model.name
    assert told["cache_salt"] == SALT
    _check_stream(job, asked, told)
    maximum = _check_maximum(job, asked, told, model)
    _check_sequences(job, told, model, maximum)
    _check_erased(told, endpoint, may_all)
    documented = {"cache_salt", "model", "stream_options", "max_tokens", "max_completion_tokens"}
    assert set(added) <= documented | ERASED | {"chat_template"}


def _check_stream(job: Job, asked: dict[str, Any], told: dict[str, Any]) -> None:
    options = asked.get("stream_options") or {}
    assert job.stream is (told.get("stream") is True)
    assert job.wants_usage is (options.get("include_usage") is True)
    if job.stream:
        assert told["stream_options"] == options | {"include_usage": True}
    else:
        assert told.get("stream_options") == asked.get("stream_options")


def _check_maximum(job: Job, asked: dict[str, Any], told: dict[str, Any], model: Model) -> int | None:
    """The most tokens of a sequence, as the worker reads it."""
    is_chat = job.endpoint is Endpoint.CHAT
    field = "max_tokens"
    if is_chat and asked.get("max_completion_tokens") is not None:
        field = "max_completion_tokens"
    given, most = asked.get(field), told.get(field)
    most = None if most is None else int(most)
    assert job.max_tokens_given is (given is not None)
    caps = [cap for cap in (model.max_output_tokens, job.caller.tenant.max_output_tokens) if cap is not None]
    if given is not None:
        assert most == min([int(given), *caps])
    elif caps:
        assert most is None or most <= min(caps)
        assert most is not None or (not is_chat and min(caps) >= COMPLETION_DEFAULT_TOKENS)
    if most is None and not is_chat:
        return COMPLETION_DEFAULT_TOKENS
    return most


def _check_sequences(job: Job, told: dict[str, Any], model: Model, maximum: int | None) -> None:
    n = int(told.get("n") or 1)
    prompt = told.get("prompt") if job.endpoint is Endpoint.COMPLETIONS else None
    is_ids = isinstance(prompt, list) and isinstance(prompt[0], Number)
    prompts = len(prompt) if isinstance(prompt, list) and not is_ids else 1
    assert job.sequences == n * prompts
    longest = model.max_model_len
    most = maximum if maximum is not None else (longest or UNKNOWN_TOKENS)
    if prompts == 1:
        left = most if longest is None else min(most, longest - job.prompt_tokens)
        assert job.max_output_tokens == n * max(1, left)
    assert job.sequences <= job.max_output_tokens <= job.sequences * max(1, most)
    assert 0 <= job.expected_output_tokens <= job.max_output_tokens
    assert job.prompt_tokens >= 0
    assert job.context_tokens > 0


def _check_erased(told: dict[str, Any], endpoint: Endpoint, may_all: bool) -> None:
    for name in ERASED:
        assert told.get(name) in DEFAULTS.get(name, {None})
    if endpoint is not Endpoint.CHAT:
        return
    if not may_all:
        assert told.get("chat_template") is None
        assert (told.get("chat_template_kwargs") or {}).get("chat_template") is None
    beginnings = ("data:", "http://", "https://") if may_all else ("data:",)
    for message in told["messages"]:
        for part in message.get("content") or ():
            for place in PLACES if isinstance(part, dict) else ():
                named = part.get(place)
                url = named.get("url") if isinstance(named, dict) else named
                assert url is None or url.lower().startswith(beginnings)


def _read(text: bytes) -> dict[str, Any]:
    """As the worker does, but for numbers, which stay as they are written."""
    found: dict[str, Any] = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    return found


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
