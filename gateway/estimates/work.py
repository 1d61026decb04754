"""How much has a worker before it: prompts to prefill, and tokens to decode?

Counted in whole tokens and turned into seconds when asked for. So what a request takes it gives back exactly,
and a better knowledge of the worker's speed holds for what it already has.
"""

from typing import NamedTuple

DOUBLE_AT_TOKENS = 57_600
"""Prompt length at which attention takes as long as all that is linear in it.

Fitted to lone prompts of 1,024 to 30,000 tokens of a 7B model on an H200, within 1 %. By the count of
operations it is (parameters of the layers) / (layers * width): 65,000 for that model, 105,000 for one of 70B.
"""


def prefill_cost(prompt_tokens: int, cached_tokens: int = 0) -> int:
    """The prompt tokens, were attention free, that would take as long as those not cached of this prompt."""
    attended = prompt_tokens * prompt_tokens - cached_tokens * cached_tokens
    return prompt_tokens - cached_tokens + attended // DOUBLE_AT_TOKENS


class Work(NamedTuple):
    """Of one request at one worker."""

    prefill_tokens: int  # its `prefill_cost` there
    decode_tokens: int  # output that is expected of it


class WorkerLoad:
    """The sums over a worker's requests. All fields are for reading."""

    __slots__ = (
        "decode_tokens",
        "prefill_tokens",
        "prefilled_at_s",
        "prefilled_tokens",
        "prefilling",
        "requests",
    )

    def __init__(self) -> None:
        self.requests = self.prefilling = self.prefill_tokens = self.decode_tokens = 0
        self.prefilled_tokens = 0  # ever, of prompts whose first token came
        self.prefilled_at_s = float("-inf")  # when the last of them was done

    def take(self, work: Work) -> "Share":
        return Share(self, work)

    def prompts_elsewhere(self, now_s: float) -> None:
        """Somebody else has prompts at this worker now, which lengthen its steps too."""
        self.prefilled_at_s = now_s

    def only_decoded_since(self, moment_s: float) -> bool:
        """Whether no prompt has lengthened the worker's steps since then."""
        return not self.prefilling and self.prefilled_at_s < moment_s


class Share:
    """One request's part of a worker's load, until it is closed. Either call may come twice.

    The part of decoding is held whole to the end: of an answer that has come far, as much is to be expected
    as at its start, unless lengths of answers have a memory. It also spares a call for each token.
    """

    __slots__ = (
        "_load",
        "_open",
        "_prefilled_before",
        "_prefilling",
        "_streams_before",
        "ahead_tokens",
        "work",
    )

    def __init__(self, load: WorkerLoad, work: Work) -> None:
        self._load = load
        self.work = work
        self.ahead_tokens = load.prefill_tokens  # of requests before it, when it came
        self._open = self._prefilling = True
        self._prefilled_before = self._streams_before = 0
        load.requests += 1
        load.prefilling += 1
        load.prefill_tokens += work.prefill_tokens
        load.decode_tokens += work.decode_tokens

    def first_token(self, now_s: float) -> None:
        """Its prompt is done."""
        if self._prefilling:
            self._prefilling = False
            load = self._load
            load.prefilling -= 1
            load.prefill_tokens -= self.work.prefill_tokens
            load.prefilled_tokens += self.work.prefill_tokens
            load.prefilled_at_s = now_s
            self._prefilled_before = load.prefilled_tokens
            self._streams_before = load.requests - load.prefilling

    def close(self) -> None:
        if self._open:
            self._open = False
            load = self._load
            if self._prefilling:
                self._prefilling = False
                load.prefilling -= 1
                load.prefill_tokens -= self.work.prefill_tokens
            load.requests -= 1
            load.decode_tokens -= self.work.decode_tokens

    def streams(self) -> float:
        """Among how many it has run, itself included; from its first token until it is closed."""
        return (self._streams_before + self._load.requests - self._load.prefilling) / 2

    def prefilled_tokens(self) -> int:
        """The `prefill_cost` of other prompts that were done since its first token."""
        return self._load.prefilled_tokens - self._prefilled_before
