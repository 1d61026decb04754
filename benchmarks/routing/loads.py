"""What is sent, when, and by whom? Pure: the same seed gives the same calls and the same prompts.

A prompt is text, because sglang-router refuses token ids (0.3.2 with 422): words of a space and three
letters, each of which is one token to a model's tokenizer (checked with Qwen's) and to a simulated worker.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from benchmarks.routing import traces
from benchmarks.routing.traces import BLOCK_TOKENS, MAX_MODEL_LEN, Row
from benchmarks.simulator.blocks import TOKEN_BYTES
from benchmarks.simulator.loads import mixed_arrivals

MIXED_LONG_TOKENS = 8_000  # a mixed load has no prompt between 800 and this
TRACE_LONG_TOKENS = 1_024  # the gateway's first bucket edge
ONE_TENANT = "t00"  # of loads that tell of no tenants
FLOOD = "flood"

_WORDS = (
    " the and for you are not but had has was all any can her him his one our out day get how man new now old"
    " see two way who boy did its let put say she too use big box car cat cut dog eat end eye far few fly got"
    " hot job key law lay led leg lie lot low map may met mix net off oil own pay per ran red run sat sea set"
    " sir sit six sky son sum sun tax tea ten top try war win won yes yet add age ago aid aim air arm art ask"
    " bad bag bar bed bit bus buy cup due egg fit fun gas god gun hit ice ill kid lip log mom nor odd"
)
_WORD_OF = [_WORDS[start : start + TOKEN_BYTES].encode() for start in range(0, len(_WORDS), TOKEN_BYTES)]
_HEAD_TOKENS = 16  # so many random ones make a prompt unlike any other


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a load."""

    at_s: float  # after the start
    tenant: str
    size: str  # "short" or "long": from MIXED_LONG_TOKENS up in the mixed load, TRACE_LONG_TOKENS elsewhere
    prompt_tokens: int
    output_tokens: int  # neither more nor fewer
    blocks: tuple[int, ...] = ()  # of BLOCK_TOKENS, with which the prompt begins: equal ids, equal text


def mixed(rate: float, lasts_s: float, seed: int) -> list[Call]:
    """Poisson at `rate` a second: 10 % of prompts 8,000-24,000 tokens, the rest 50-800; outputs 50-200.

    The same requests as in the measurements that the simulated worker was fitted to.
    """
    arrivals = takewhile(lambda one: one.time_s < lasts_s, mixed_arrivals(rate, lasts_s, seed))
    return [
        Call(
            at_s=one.time_s,
            tenant=ONE_TENANT,
            size="long" if one.is_long else "short",
            prompt_tokens=one.request.prompt_tokens,
            output_tokens=one.request.output_tokens,
        )
        for one in arrivals
    ]


def conversation(rate_factor: float, lasts_s: float, seed: int, folder: Path | None = None) -> list[Call]:
    """Mooncake's conversations, or such as are like them: 3.1 calls a second of the trace's time.

    rate_factor: seconds of the trace in a second of the load. The seed chooses the stretch of the trace.
    folder: with the published trace. Raises ValueError where the time is more than the trace has, and as
    `traces.read_conversation`.
    """
    rows = traces.made_conversation(seed) if folder is None else traces.read_conversation(folder, seed)
    return list(_stretch(rows, traces.CONVERSATION_S, rate_factor, lasts_s, seed))


def arena(
    rate_factor: float, lasts_s: float, seed: int, folder: Path | None = None, flood_rate: float = 0.0
) -> list[Call]:
    """Chatbot Arena's 27 tenants, or such as are like them: 2.5 calls a second of the trace's time.

    flood_rate: calls a second, Poisson, of the tenant FLOOD beside them, of the sizes that the others ask
    for. Their calls are the same with it and without. All else as of `conversation`.
    """
    rows = traces.made_arena(seed) if folder is None else traces.read_arena(folder)
    calls = [*_stretch(rows, traces.ARENA_S, rate_factor, lasts_s, seed)]
    if flood_rate:
        calls += _flood(flood_rate, lasts_s, rows, seed)
    return sorted(calls, key=lambda call: call.at_s)


def _stretch(
    rows: Sequence[Row], trace_s: float, rate_factor: float, lasts_s: float, seed: int
) -> Iterator[Call]:
    """A part of a trace, at another speed."""
    spare_s = trace_s - rate_factor * lasts_s
    if spare_s < 0:
        raise ValueError(
            f"{lasts_s:g} s at {rate_factor:g} times the rate is more than the trace's {trace_s:g} s"
        )
    start_s = random.Random(seed).uniform(0, spare_s)
    for row in rows:
        at_s = (row.at_s - start_s) / rate_factor
        if 0 <= at_s < lasts_s:
            yield _call(row, at_s, row.tenant or ONE_TENANT)


def _flood(rate: float, lasts_s: float, rows: Sequence[Row], seed: int) -> Iterator[Call]:
    drawn = random.Random(seed)
    at_s = drawn.expovariate(rate)
    while at_s < lasts_s:
        yield _call(drawn.choice(rows), at_s, FLOOD)
        at_s += drawn.expovariate(rate)


def _call(row: Row, at_s: float, tenant: str) -> Call:
    size = "short" if row.prompt_tokens < TRACE_LONG_TOKENS else "long"
    room_tokens = MAX_MODEL_LEN - row.prompt_tokens  # vLLM refuses who asks for more
    return Call(at_s, tenant, size, row.prompt_tokens, min(row.output_tokens, room_tokens), row.blocks)


def prompt(call: Call, seed: int) -> bytes:
    """ASCII that JSON need not escape: TOKEN_BYTES a token. Beyond the blocks no two calls are alike."""
    shared = b"".join(map(_block, call.blocks))[: call.prompt_tokens * TOKEN_BYTES]
    rest_bytes = call.prompt_tokens * TOKEN_BYTES - len(shared)
    identity = repr((seed, call.at_s, call.tenant, call.prompt_tokens, call.output_tokens))
    head = _text(hashlib.blake2b(identity.encode(), digest_size=_HEAD_TOKENS).digest())
    return shared + (head + _filler())[:rest_bytes]


def _text(chosen: bytes) -> bytes:
    """A word for each byte."""
    return b"".join([_WORD_OF[byte % len(_WORD_OF)] for byte in chosen])


@lru_cache(maxsize=16_384)  # 33 MB; an hour of Mooncake's conversation has seven times as many
def _block(identity: int) -> bytes:
    return _text(random.Random(identity).randbytes(BLOCK_TOKENS))


@lru_cache(maxsize=1)
def _filler() -> bytes:
    """What long prompts go on with. It may be the same for all, since no cache looks behind a unique head."""
    return _text(random.Random(0).randbytes(traces.MOST_PROMPT_TOKENS))
