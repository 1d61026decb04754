"""What was asked of the server, and what became of each request? Plain values, no I/O."""

from dataclasses import dataclass
from typing import Literal

Endpoint = Literal["chat", "completions"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of one burst. Holds no key, so it can be written down as it is."""

    base_url: str
    model: str  # empty: the first that the server lists
    endpoint: Endpoint
    stream: bool
    requests: int
    concurrency: int  # most requests at once
    max_tokens: int
    prompt_tokens: int  # aimed at; the server's own count is in the records
    prompt_file: str | None  # used instead
    seed: int
    max_retries: int
    timeout_s: float  # longest wait to connect, and for a byte


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no whole answer."""

    status: int | None  # of the HTTP response; None: there was none
    code: str  # the server's `error.code` (or `type`), else one of ours
    message: str

    @property
    def kind(self) -> str:
        """The line under which it is counted, such as `429 rate_limit_exceeded`."""
        return self.code if self.status is None else f"{self.status} {self.code}"


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are in seconds since the burst began; None: that never came."""

    index: int
    started_s: float  # when it got its place among the concurrent ones
    ended_s: float
    first_token_s: float | None = None  # streamed answers only, as is the next
    last_token_s: float | None = None
    prompt_tokens: int | None = None  # both as `usage` says
    output_tokens: int | None = None
    request_id: str | None = None
    retries: int = 0
    failure: Failure | None = None

    @property
    def latency_s(self) -> float:
        """From the start to the end of the answer."""
        return self.ended_s - self.started_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return None if self.first_token_s is None else self.first_token_s - self.started_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None where there were fewer than two."""
        if self.first_token_s is None or self.last_token_s is None:
            return None
        if self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)
