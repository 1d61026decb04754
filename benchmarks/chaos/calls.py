"""What did a caller ask for, and what came of it? What callers note, and the checker reads."""

from dataclasses import dataclass, field
from typing import Any

LEFT = "left"  # by the caller's own will
GAVE_UP = "gave up"  # nothing ended the call within the caller's patience


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call is to be. Prompts are the callers' own; they are told apart by the request's id."""

    id: str
    tenant: str
    chat: bool
    stream: bool
    max_tokens: int
    prompt: str
    with_usage: bool = False
    leaves_after_s: float | None = None
    leaves_after_tokens: int | None = None
    pause_s: float = 0.0  # before each read: a slow reader

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self) -> dict[str, Any]:
        """As JSON values."""
        body: dict[str, Any] = {
            "model": "chaos",
            "max_tokens": self.max_tokens,
            "stream": self.stream,
            **(
                {"messages": [{"role": "user", "content": self.prompt}]}
                if self.chat
                else {"prompt": self.prompt}
            ),
        }
        if self.with_usage:
            body["stream_options"] = {"include_usage": True}
        return body


@dataclass(slots=True)
class Call:
    """What a caller has seen. Times are those of `time.time`, as in the gateway's log."""

    wish: Wish
    by: str  # "raw", "sdk", or what is wrong with it on purpose
    replica: int
    begun_at: float
    ended_at: float = 0.0
    first_at: float | None = None  # of the first token of a stream
    status: int = 0  # 0: nothing came
    answered_id: str = ""  # the x-request-id of the answer
    degraded: str = ""
    worker: str = ""
    text: str = ""
    finish_reason: str | None = None
    done: bool = False  # [DONE] came; or all of an answer that is not streamed
    usages: int = 0  # events or members that tell of usage
    body: bytes = b""  # of an answer that is not streamed, as it came
    error: dict[str, Any] | None = None  # the error object
    broke: str = ""  # how it ended otherwise: LEFT, GAVE_UP, or what happened to the connection
    attempts: list[str] = field(default_factory=list)  # ids of all requests that were made for it
    expected: int = 200  # status; another one where something is wrong with it on purpose

    @property
    def is_success(self) -> bool:
        """By all that its caller can tell."""
        ended_well = self.done if self.by == "raw" or not self.wish.stream else self.finish_reason is not None
        return self.status == 200 and self.error is None and not self.broke and ended_well

    @property
    def is_hostile(self) -> bool:
        return self.by not in ("raw", "sdk")

    @property
    def outcome(self) -> str:
        """For counting."""
        if self.is_success:
            return "whole"
        if self.broke in (LEFT, GAVE_UP):
            return self.broke
        if self.error is not None:
            late = " in a stream" if self.status == 200 else ""
            return f"{self.error.get('code')}{late}"
        if self.status == 200 and not self.broke:
            return "ended without [DONE]"
        return "connection broke" if self.status or "refused" not in self.broke else "connection refused"
