"""What is read of the JSON that workers answer with. Everything not named here is skipped, and not judged."""

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from gateway.model import Usage


class _PromptDetails(Struct):
    cached_tokens: int | None = None


class UsageObject(Struct):
    """The `usage` member of an answer."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None

    def usage(self) -> Usage:
        details = self.prompt_tokens_details
        return Usage(
            self.prompt_tokens, self.completion_tokens or 0, (details and details.cached_tokens) or 0
        )


class Event(Struct):
    """Of a stream."""

    choices: list[Raw] | None = None
    usage: UsageObject | None = None
    error: Any = None


class Whole(Struct):
    """An answer that is no stream."""

    usage: UsageObject | None = None


class ErrorObject(Struct):
    code: int | str | None = None
    message: str = ""


class Refusal(Struct):
    """An answer that is an error."""

    error: ErrorObject


# Each raises msgspec.MsgspecError.
event = Decoder(Event).decode
whole = Decoder(Whole).decode
refusal = Decoder(Refusal).decode
