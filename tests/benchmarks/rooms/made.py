"""Times as the tests want them."""

from benchmarks.overhead.requests import STREAM_TOKENS
from benchmarks.rooms.budget import PLAIN, WITHIN_PLAIN

LONGEST = f"whole_stream[{STREAM_TOKENS}]"


def times(**others: float) -> dict[str, float]:
    """In microseconds: every room takes one, the whole of a request 20, a stream 64 and each of its chunks
    three."""
    parts = {key for within in WITHIN_PLAIN.values() for key in within.values()}
    made = dict.fromkeys([*PLAIN.values(), *parts, "relay_stream", "pour", "chunks", "watch"], 1.0)
    stream = {"whole_stream[0]": 64.0, LONGEST: 64.0 + 3 * STREAM_TOKENS}
    return made | stream | {"waiting_task": 1.5, "together": 15.0, "whole_plain": 20.0} | others
