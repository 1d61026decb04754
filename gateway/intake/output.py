"""How much may a request generate?"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.errors import BadRequest
from gateway.intake.schema import ChatBody, CompletionBody
from gateway.model import Model, Tenant

COMPLETION_DEFAULT_TOKENS = 16  # what OpenAI and vLLM take for a completion that names no maximum
UNKNOWN_TOKENS = 1024  # a guess for a chat without a maximum, while no worker has told its longest
LARGEST_TOKENS = 2**31 - 1  # a bound while that is not known


class Maximum(NamedTuple):
    """Output tokens of one sequence."""

    field: str  # the one that the worker goes by
    given: bool  # the caller named it
    tokens: int | None  # None: as many as the model's length leaves
    changed: bool  # the worker must be told


def settle(body: ChatBody | CompletionBody, model: Model, tenant: Tenant) -> Maximum:
    """What the caller asked for, or the default, under the caps of model and tenant. Raises BadRequest."""
    field, asked = _asked(body)
    least = 0 if isinstance(body, CompletionBody) and body.echo else 1
    if asked is not None and asked < least:
        raise BadRequest(f"'{field}' must be at least {least}.", param=field)
    tokens = unchanged = asked
    if asked is None:
        chat = isinstance(body, ChatBody)
        unchanged = None if chat else COMPLETION_DEFAULT_TOKENS  # what the worker does by itself
        tokens = model.default_max_tokens if chat else COMPLETION_DEFAULT_TOKENS
    if model.max_output_tokens is not None:
        tokens = _at_most(model.max_output_tokens, tokens)
    if tenant.max_output_tokens is not None:
        tokens = _at_most(tenant.max_output_tokens, tokens)
    if tokens is not None and tokens > (model.max_model_len or LARGEST_TOKENS):
        if asked is not None:
            raise _too_large(field, model)
        tokens = model.max_model_len
    return Maximum(field, asked is not None, tokens, tokens != unchanged)


def total(maximum: Maximum, prompt_tokens: Sequence[int], n: int, model: Model) -> int:
    """The most tokens that all sequences together can have. Each has at least one."""
    longest = model.max_model_len
    if longest is None:
        tokens = UNKNOWN_TOKENS if maximum.tokens is None else maximum.tokens
        return n * len(prompt_tokens) * max(1, tokens)
    most = longest if maximum.tokens is None else maximum.tokens
    return n * sum([max(1, min(most, longest - tokens)) for tokens in prompt_tokens])


def _asked(body: ChatBody | CompletionBody) -> tuple[str, int | None]:
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        return "max_completion_tokens", body.max_completion_tokens
    return "max_tokens", body.max_tokens


def _at_most(cap: int, tokens: int | None) -> int:
    return cap if tokens is None else min(cap, tokens)


def _too_large(field: str, model: Model) -> BadRequest:
    most = model.max_model_len or LARGEST_TOKENS
    message = f"'{field}' is too large: prompt and output together may have {most} tokens."
    return BadRequest(message, param=field)
