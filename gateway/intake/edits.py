"""What must the worker be told beside the caller's own words?

Nothing of the caller's is changed. Members are appended before the closing brace: of two members with
one name the worker takes the last.
"""

from operator import attrgetter
from typing import Any

from msgspec import Raw
from msgspec.json import Encoder

from gateway import settings
from gateway.intake.output import Maximum
from gateway.intake.schema import ABSENT, ChatBody, CompletionBody, decode_options, was_sent
from gateway.model import Caller, Incoming, Model

JOIN_BELOW_BYTES = 65536
"""Up to here one copy is cheaper than sending three pieces."""

_TRUE = Raw(b"true")
_ERASED_BY_NULL = (
    "session_id",
    "kv_transfer_params",  # in a chat, its prompt_token_ids would replace the messages that were measured
    "ec_transfer_params",
    "vllm_xargs",
    "prompt_embeds",
    "mm_processor_kwargs",  # of the worker's decoders: an image can be blown up to any size
    "media_io_kwargs",
)
_ERASED = ("priority", "request_id", *_ERASED_BY_NULL)
_erased = attrgetter(*_ERASED)
_NONE_ERASED = (ABSENT,) * len(_ERASED)

_encode = Encoder().encode


def asked_for_usage(body: ChatBody | CompletionBody) -> bool:
    """Whether the caller wants the usage event of a stream."""
    options = body.stream_options
    return was_sent(options) and decode_options(options).get("include_usage") == _TRUE


def members(
    body: ChatBody | CompletionBody,
    *,
    incoming: Incoming,
    caller: Caller,
    model: Model,
    maximum: Maximum,
    rules: settings.Intake,
) -> dict[str, Any]:
    """The members to append, by name."""
    added: dict[str, Any] = {"cache_salt": caller.cache_salt}
    if body.model != model.name:
        added["model"] = model.name
    if body.stream and not asked_for_usage(body):
        options = decode_options(body.stream_options) if was_sent(body.stream_options) else {}
        added["stream_options"] = {**options, "include_usage": True}
    if maximum.changed:
        added[maximum.field] = maximum.tokens
    if (sent := _erased(body)) != _NONE_ERASED:
        defaults = {"priority": 0, "request_id": incoming.id}  # null is an error for these two
        added |= {
            name: defaults.get(name) for name, field in zip(_ERASED, sent, strict=True) if was_sent(field)
        }
    if isinstance(body, ChatBody) and not rules.allow_chat_template and was_sent(body.chat_template):
        added["chat_template"] = None
    return added


def append(body: bytes | bytearray, added: dict[str, Any]) -> tuple[bytes | memoryview, ...]:
    """The bytes of `body`, an object with a member at least, and of `added`. Large bodies are not copied."""
    whole = memoryview(body)
    brace = body.rindex(b"}")
    pieces = (whole[:brace], b"," + _encode(added)[1:-1], whole[brace:])
    return pieces if len(body) >= JOIN_BELOW_BYTES else (b"".join(pieces),)
