"""In which pieces may bytes come? In any: here are some ways, for the same bytes always the same."""

import random
import re
from collections.abc import Iterator
from itertools import pairwise
from zlib import crc32

FEW_BYTES = 400  # of which each may come by itself
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Whole first, then in lines, at random places, and byte by byte if it is short."""
    yield [data]
    yield _LINES.findall(data)
    places = random.Random(crc32(data))
    for count in (1, 2, 6):
        yield _cut(data, [places.randint(0, len(data)) for _ in range(count)])
    if len(data) <= FEW_BYTES:
        yield _cut(data, list(range(len(data))))


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, *places, len(data)})
    return [data[begin:end] for begin, end in pairwise(bounds)]
