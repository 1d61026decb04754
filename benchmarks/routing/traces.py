"""Who asked when, and for how much? Two public traces, or made-up ones with the same statistics.

Both kinds cover the same time and give the same rows. The files are those of the projects that published
them: Mooncake's `conversation_trace.jsonl` of FAST '25 (Qin et al.), and the Chatbot Arena log that VTC was
judged on (Sheng et al., OSDI '24) as a CSV of arrived_at_s, tenant, prompt_tokens, output_tokens.
"""

import csv
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, pairwise
from pathlib import Path

BLOCK_TOKENS = 512  # of Mooncake's hash ids
MAX_MODEL_LEN = 32_768  # of the workers: prompt and output together
MOST_PROMPT_TOKENS = 31_000  # longer prompts are left out

CONVERSATION_FILE = "mooncake_conversation.jsonl"
CONVERSATION_S = 3537.0
STEP_S = 3.0  # in which Mooncake's times are told
ARENA_FILE = "vtc_arena_multitenant.csv"
ARENA_S = 600.0

Quantiles = Sequence[tuple[float, float]]  # share, value; both rising, from share 0 to share 1

# Of Mooncake's conversation without the prompts that are left out: 11,105 requests. 6,843 share no more than
# the first block, which all have, and so begin a conversation; the others go on from one before.
SESSIONS_PER_S = 1.935
GOES_ON_SHARE = (
    0.43  # of requests; so many that the requests and the reused blocks are as many as the trace's
)
PAUSE_MEDIAN_S, PAUSE_SIGMA = 120.0, 1.06  # between two requests of a conversation: log-normal
FIRST_PROMPT_TOKENS: Quantiles = (
    (0, 891), (0.1, 903), (0.2, 1_043), (0.3, 1_526), (0.4, 3_315), (0.5, 4_771), (0.6, 6_317),
    (0.75, 10_528), (0.9, 18_343), (0.99, 28_958), (1, 31_000),
)  # fmt: skip
ADDED_BLOCKS: Quantiles = ((0, 1), (0.1, 1), (0.25, 2), (0.5, 2), (0.75, 7), (0.9, 18), (0.99, 39), (1, 59))
CONVERSATION_OUTPUT_TOKENS: Quantiles = (
    (0, 1), (0.1, 24), (0.2, 100), (0.4, 288), (0.5, 347), (0.7, 444), (0.9, 592), (0.99, 1_024), (1, 2_000),
)  # fmt: skip

# Of VTC's log: 1,500 requests.
GAP_CV = 1.10  # of the times between two: standard deviation over mean, 1 of a Poisson process
REQUESTS_OF_TENANTS = (
    296, 262, 199, 120, 67, 66, 56, 46, 44, 43, 40, 36, 31, 26, 25, 23, 22, 22, 19, 19, 12, 11, 7, 3, 2, 2, 1,
)  # fmt: skip
ARENA_PROMPT_TOKENS: Quantiles = (
    (0, 2), (0.05, 2), (0.1, 5), (0.3, 16), (0.5, 40), (0.6, 68), (0.7, 124), (0.8, 215), (0.9, 432),
    (0.95, 656), (0.99, 929), (1, 1_021),
)  # fmt: skip
ARENA_OUTPUT_TOKENS: Quantiles = (
    (0, 2), (0.1, 18), (0.2, 43), (0.3, 85), (0.4, 141), (0.5, 211), (0.6, 309), (0.7, 400), (0.8, 511),
    (0.95, 513), (0.99, 785), (1, 977),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace. blocks: ids of BLOCK_TOKENS tokens each, the last may be cut short."""

    at_s: float
    tenant: str
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


def read_conversation(folder: Path, seed: int) -> list[Row]:
    """Mooncake's, each request put somewhere into the step of 3 s that its time names.

    Prompts over MOST_PROMPT_TOKENS are left out: 926 of 12,031. Raises OSError; KeyError or ValueError for
    a file that is none of Mooncake's.
    """
    jitter = random.Random(seed)
    with (folder / CONVERSATION_FILE).open(encoding="utf-8") as lines:
        told = [json.loads(line) for line in lines]
    rows = [
        Row(
            at_s=each["timestamp"] / 1e3 + jitter.uniform(0, STEP_S),
            tenant="",
            prompt_tokens=each["input_length"],
            output_tokens=each["output_length"],
            blocks=tuple(each["hash_ids"]),
        )
        for each in told
        if each["input_length"] <= MOST_PROMPT_TOKENS
    ]
    return sorted(rows, key=lambda row: row.at_s)


def read_arena(folder: Path) -> list[Row]:
    """VTC's. Raises OSError; KeyError or ValueError for a file that is none of VTC's."""
    with (folder / ARENA_FILE).open(encoding="utf-8", newline="") as lines:
        return [
            Row(
                at_s=float(each["arrived_at_s"]),
                tenant=each["tenant"],
                prompt_tokens=int(each["prompt_tokens"]),
                output_tokens=int(each["output_tokens"]),
            )
            for each in csv.DictReader(lines)
        ]


def made_conversation(seed: int) -> list[Row]:
    """Like Mooncake's, of the same length: conversations that begin at random and go on after pauses.

    What goes on begins with all whole blocks of what was asked before. The first block is everyone's.
    """
    drawn = random.Random(seed)
    fresh = count(1)
    rows: list[Row] = []
    at_s = drawn.expovariate(SESSIONS_PER_S)
    while at_s < CONVERSATION_S:
        rows.extend(_session(drawn, fresh, at_s))
        at_s += drawn.expovariate(SESSIONS_PER_S)
    return sorted(rows, key=lambda row: row.at_s)


def _session(drawn: random.Random, fresh: Iterator[int], at_s: float) -> Iterator[Row]:
    """One conversation, until it ends, outgrows the longest prompt or the time is over."""
    blocks: tuple[int, ...] = (0,)
    prompt_tokens = _draw(drawn, FIRST_PROMPT_TOKENS)
    while at_s < CONVERSATION_S and prompt_tokens <= MOST_PROMPT_TOKENS:
        added = math.ceil(prompt_tokens / BLOCK_TOKENS) - len(blocks)
        blocks += tuple(next(fresh) for _ in range(added))
        yield Row(at_s, "", prompt_tokens, _draw(drawn, CONVERSATION_OUTPUT_TOKENS), blocks)
        if drawn.random() >= GOES_ON_SHARE:
            return
        at_s += drawn.lognormvariate(math.log(PAUSE_MEDIAN_S), PAUSE_SIGMA)
        blocks = blocks[: prompt_tokens // BLOCK_TOKENS]
        whole_tokens = len(blocks) * BLOCK_TOKENS
        prompt_tokens = (
            whole_tokens + _draw(drawn, ADDED_BLOCKS) * BLOCK_TOKENS - drawn.randrange(BLOCK_TOKENS)
        )


def made_arena(seed: int) -> list[Row]:
    """Like VTC's, as many in the same time: at gaps of a gamma distribution, the tenants in any order."""
    drawn = random.Random(seed)
    tenants = [
        f"t{number:02}" for number, requests in enumerate(REQUESTS_OF_TENANTS) for _ in range(requests)
    ]
    drawn.shuffle(tenants)
    gaps = [drawn.gammavariate(GAP_CV**-2, 1) for _ in tenants]
    second = sum(gaps) / ARENA_S
    return [
        Row(end / second, tenant, _draw(drawn, ARENA_PROMPT_TOKENS), _draw(drawn, ARENA_OUTPUT_TOKENS))
        for end, tenant in zip(accumulate(gaps), tenants, strict=True)
    ]


def _draw(drawn: random.Random, quantiles: Quantiles) -> int:
    """Between two quantiles all values are equally likely."""
    share = drawn.random()
    (low_share, low), (high_share, high) = next(pair for pair in pairwise(quantiles) if share <= pair[1][0])
    return round(low + (high - low) * (share - low_share) / (high_share - low_share))
