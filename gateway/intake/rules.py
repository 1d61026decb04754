"""Which requests are refused before a worker sees them?

Only what would cost others dearly, or what the worker would ignore in silence. Everything else that a
worker refuses, it refuses itself.
"""

from operator import attrgetter
from typing import Any

from msgspec import Raw

from gateway import settings
from gateway.errors import BadRequest
from gateway.intake import media, shape
from gateway.intake.refusals import not_allowed, unsupported
from gateway.intake.schema import (
    ABSENT,
    ChatBody,
    CompletionBody,
    decode_options,
    decode_template_arguments,
    was_sent,
)

MOST_PIECES = 100_000
"""Messages and their parts in one chat: far above any conversation, and read fast enough to stall no one."""

_STRUCTURED = "vLLM no longer reads it, the output would be unconstrained. Use 'structured_outputs': "
_REMOVED = {
    "guided_json": _STRUCTURED + "{\"json\": ...}, or 'response_format'.",
    "guided_regex": _STRUCTURED + '{"regex": ...}.',
    "guided_choice": _STRUCTURED + '{"choice": [...]}.',
    "guided_grammar": _STRUCTURED + '{"grammar": ...}.',
    "guided_decoding_backend": "vLLM no longer reads it. Leave it out: the worker chooses the backend.",
    "guided_whitespace_pattern": "vLLM no longer reads it. Leave it out, or write it into a grammar.",
}
_removed = attrgetter(*_REMOVED)
_NONE_REMOVED = (ABSENT,) * len(_REMOVED)


def check(body: ChatBody | CompletionBody, rules: settings.Intake) -> None:
    """Raises BadRequest for the first rule broken."""
    _check_options(body, rules)
    _check_schemas(body)
    sequences = 1
    if body.n is not None:
        sequences = body.n
        _within("n", sequences, 1, rules.max_n)
    if body.best_of not in (None, 1, body.n):
        raise unsupported("best_of", "Leave it out, or set it to the value of 'n'.")
    if isinstance(body, ChatBody):
        _check_chat(body, rules)
        prompts = 1
    else:
        _check_completion(body, rules)
        prompts = prompt_count(body)
    if sequences * prompts > rules.max_sequences:
        message = (
            f"'n' times the number of prompts is {sequences * prompts}; the most is {rules.max_sequences}. "
            "Send fewer prompts in one request, or a smaller 'n'."
        )
        raise BadRequest(message, param="n" if sequences > 1 else "prompt")


def prompt_count(body: CompletionBody) -> int:
    """One, unless `prompt` is a list of texts or of token lists."""
    prompt = body.prompt
    return len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1


def _check_options(body: ChatBody | CompletionBody, rules: settings.Intake) -> None:
    if was_sent(body.stream_options):
        if not body.stream:
            message = "The 'stream_options' parameter is only allowed when 'stream' is true."
            raise BadRequest(message, param="stream_options")
        usage = decode_options(body.stream_options).get("include_usage")
        if usage is not None and bytes(usage) not in (b"true", b"false", b"null"):
            param = "stream_options.include_usage"
            message = f"Invalid type for '{param}': expected true, false or null."
            raise BadRequest(message, param=param, code="invalid_type")
    if body.use_beam_search:
        raise unsupported("use_beam_search", "Leave it out, and use 'n' for several answers.")
    if not rules.allow_logprobs:
        _check_no_logprobs(body)
    if body.prompt_logprobs is not None:
        if not rules.allow_prompt_logprobs:
            raise unsupported("prompt_logprobs", "Leave it out.")
        _within("prompt_logprobs", body.prompt_logprobs, 0, rules.max_logprobs)
    if (removed := _removed(body)) != _NONE_REMOVED:
        name = next(name for name, field in zip(_REMOVED, removed, strict=True) if was_sent(field))
        raise unsupported(name, _REMOVED[name])


def _check_schemas(body: ChatBody | CompletionBody) -> None:
    """Whatever a worker makes a grammar of."""
    if body.response_format is not ABSENT:
        shape.check_levels(bytes(body.response_format), "response_format")
    if body.structured_outputs is not ABSENT:
        shape.check_levels(bytes(body.structured_outputs), "structured_outputs")
    if isinstance(body, ChatBody) and body.tools is not ABSENT:
        shape.check_levels(bytes(body.tools), "tools")


def _check_no_logprobs(body: ChatBody | CompletionBody) -> None:
    if isinstance(body, ChatBody):
        asked = {"logprobs": bool(body.logprobs), "top_logprobs": bool(body.top_logprobs)}
    else:
        asked = {"logprobs": body.logprobs is not None}  # 0 asks for those of the chosen tokens
    asked["prompt_logprobs"] = body.prompt_logprobs is not None
    for name, is_asked in asked.items():
        if is_asked:
            raise not_allowed(name, "allow_logprobs")


def _check_chat(body: ChatBody, rules: settings.Intake) -> None:
    if not body.messages:
        raise BadRequest("'messages' is empty. Send at least one message.", param="messages")
    if body.top_logprobs is not None:
        _within("top_logprobs", body.top_logprobs, 0, rules.max_logprobs)
    if not rules.allow_chat_template and was_sent(body.chat_template_kwargs):
        _check_template_arguments(body.chat_template_kwargs)
    pieces = len(body.messages)
    _check_pieces(pieces)
    for index, message in enumerate(body.messages):
        if isinstance(message.content, list):
            pieces += len(message.content)
            _check_pieces(pieces)
            media.check(message.content, f"messages[{index}].content", rules.allow_media_urls)


def _check_pieces(count: int) -> None:
    if count > MOST_PIECES:
        message = f"'messages' and their parts are {count}; the most is {MOST_PIECES}. Join some of them."
        raise BadRequest(message, param="messages")


def _check_template_arguments(field: Raw) -> None:
    if was_sent(decode_template_arguments(field).chat_template):
        raise not_allowed("chat_template_kwargs.chat_template", "allow_chat_template")


def _check_completion(body: CompletionBody, rules: settings.Intake) -> None:
    if body.logprobs is not None:
        _within("logprobs", body.logprobs, 0, rules.max_logprobs)
    if body.prompt is None:
        if was_sent(body.prompt_embeds):
            raise unsupported("prompt_embeds", "Send text or token ids in 'prompt'.")
        raise BadRequest(
            "Missing required parameter: 'prompt'.", param="prompt", code="missing_required_parameter"
        )
    if isinstance(body.prompt, list):
        _check_prompt_list(body.prompt, rules)


def _check_prompt_list(prompt: list[Any], rules: settings.Intake) -> None:
    if not prompt:
        raise BadRequest("'prompt' is an empty array. Send at least one prompt.", param="prompt")
    if len(set(map(type, prompt))) > 1:
        message = "'prompt' must hold only strings, only token ids, or only arrays of token ids."
        raise BadRequest(message, param="prompt", code="invalid_type")
    if not isinstance(prompt[0], int) and len(prompt) > rules.max_prompts:
        message = (
            f"'prompt' holds {len(prompt)} prompts; the most is {rules.max_prompts}. Send fewer at once."
        )
        raise BadRequest(message, param="prompt")


def _within(param: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadRequest(f"'{param}' must be between {least} and {most}.", param=param)
