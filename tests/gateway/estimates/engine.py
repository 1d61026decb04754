"""A model of one worker, small enough to reckon with: prompts one after the other, streams all at once."""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from gateway.estimates.coefficients import Speed
from gateway.estimates.limits import AdaptiveLimit

# Streams, and milliseconds for one token of each: a 7B model on one H200, 512 tokens in and out.
MEASURED_MS = ((1, 4.92), (16, 5.32), (40, 5.95), (64, 6.49), (128, 8.59), (256, 22.06))


def measured_gap_s(streams: int) -> float:
    """Seconds between two tokens; in between the measured points a straight line."""
    at = min(max(bisect_right(MEASURED_MS, (streams, 0.0)), 1), len(MEASURED_MS) - 1)
    (low, low_ms), (high, high_ms) = MEASURED_MS[at - 1 : at + 1]
    return (low_ms + (high_ms - low_ms) * (streams - low) / (high - low)) / 1000


def run(
    limit: AdaptiveLimit,
    offered: Callable[[int], int],
    seconds: int,
    *,
    gap_s: Callable[[int], float] = measured_gap_s,
    tokens: int = 512,
    noise: float = 0.1,
    prefilling: float = 0.0,
    seed: int = 1,
    began: int = 0,
) -> Sequence[tuple[int, float]]:
    """For each second: the streams in it, and the tokens that came.

    offered: how many streams there would be without a limit, in each second. noise: of a gap, relative.
    prefilling: the part of gaps in which a prompt is prefilled, which makes them 20 ms longer.
    began: the time at the start. Streams above a lowered limit stay until they are done.
    """
    chance = random.Random(seed)
    streams, passed = 0, []
    limit.tick(began, 0)
    for second in range(began + 1, began + seconds + 1):
        allowed = min(limit.limit, offered(second))
        gap = gap_s(streams or allowed) * chance.gauss(1, noise / 5)  # what all gaps of a second share
        ending = int(streams / (tokens * gap))
        streams = max(allowed, streams - ending)
        for _ in range(40):
            prefill_s = 0.02 if chance.random() < prefilling else 0.0
            limit.observe(gap * max(0.1, chance.gauss(1, noise)) + prefill_s, prefill_s == 0)
        limit.tick(second, streams)
        passed.append((streams, streams / gap_s(streams)))
    return passed


def first_tokens(
    speed: Speed, requests: int, *, load: float = 0.5, seed: int = 1
) -> Iterator[tuple[int, int, float]]:
    """Of requests in their order: tokens ahead, tokens of its own, and the wait for the first token.

    The worker prefills in order of arrival. load: the part of its time that this takes. 9 in 10 prompts
    are short. What is ahead is counted whole until its first token, as the gateway counts it.
    """
    chance = random.Random(seed)
    now_s = free_at_s = 0.0
    pending: list[tuple[float, int]] = []  # done when, tokens
    for _ in range(requests):
        own = chance.randint(8000, 24000) if chance.random() < 0.1 else chance.randint(50, 800)
        now_s += chance.expovariate(load / (speed.first_token_s + 1_983 * speed.prefill_token_s))
        pending = [(done_s, tokens) for done_s, tokens in pending if done_s > now_s]
        ahead = sum(tokens for _, tokens in pending)
        took_s = (speed.first_token_s + own * speed.prefill_token_s) * max(0.2, chance.gauss(1, 0.1))
        free_at_s = max(free_at_s, now_s) + took_s
        pending.append((free_at_s, own))
        yield ahead, own, free_at_s - now_s
