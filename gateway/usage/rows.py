"""What is one line of a tenant's account?"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

Labels = tuple[str, str, str, str, str]  # UTC day as "2026-11-30", tenant, key id, model, outcome
Counts = Sequence[int]  # requests, prompt tokens, cached tokens among them, completion tokens
Sums = Mapping[Labels, Counts]


class UsageRow(Struct, frozen=True, order=True):
    """What one key of one tenant used of one model on one day, of requests that ended in one way."""

    day: str  # in UTC, as "2026-11-30"
    tenant: str
    key: str  # its id, never the secret
    model: str  # "none" where a request ended before its model was known
    outcome: str
    requests: int
    prompt_tokens: int
    cached_tokens: int  # of the prompt tokens, those that the worker had in its prefix cache
    completion_tokens: int


def rows_of(sums: Sums) -> list[UsageRow]:
    """Sorted by day, tenant, key, model and outcome."""
    return sorted(UsageRow(*labels, *counts) for labels, counts in sums.items())
