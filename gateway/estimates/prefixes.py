"""How much of this prompt does a worker still have in its prefix cache?

Guessed from what was sent to it. A prompt is a chain: after each step of its bytes, a hash of all up to
there. The hash is Python's own of bytes (SipHash-1-3, keyed by a secret of the process): more than twice as
fast as SHA-256 with processor support, and nobody outside can make two prompts collide. Hence a chain means
nothing to another process. It begins with the salt that keeps tenants apart in the workers' caches, so a
tenant finds its own prompts only.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator

from gateway.model import Chain

MAX_ENTRIES = 20_000  # a worker; at the finest step 20 MB of text, about 5 million tokens
STEP_BYTES = 1024
STEPS_OF_A_SIZE = 16  # then the next are twice as long: the last step is at most 1/16 of a prompt's length
SIZES = 5  # of steps; what comes after 496 KiB is taken to be new


def _ends() -> Iterator[int]:
    end = 0
    for size in range(SIZES):
        for _ in range(STEPS_OF_A_SIZE):
            end += STEP_BYTES << size
            yield end


_ENDS = tuple(_ends())
_STEPS = tuple(slice(start, end) for start, end in zip((0, *_ENDS), _ENDS, strict=False))


def chain(salt: str, prompt: memoryview, prompt_tokens: int) -> Chain | None:
    """prompt: what the worker's template renders, as it was sent: a chat's messages, a text, token ids.

    None for a prompt that is shorter than the shortest step.
    """
    if len(prompt) < STEP_BYTES:
        return None
    link = hash(salt)
    steps = _STEPS[: bisect_right(_ENDS, len(prompt))]
    hashes = [link := hash((link, bytes(prompt[step]))) for step in steps]
    hashes.reverse()
    return Chain(hashes, len(prompt), prompt_tokens)


class Prefixes:
    """The chains that each worker was sent lately."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        """max_entries: steps remembered of each worker; best about what its cache holds."""
        self._max_entries = max_entries
        self._by_worker: dict[str, OrderedDict[int, None]] = {}

    def cached_tokens(self, worker: str, chain: Chain) -> int:
        """Prompt tokens that the worker need not compute, at a guess. One it always must."""
        known = self._by_worker.get(worker)
        if known is None:
            return 0
        hashes = chain.hashes
        # A step is known only with all before it (see `note`), so the known ones are the end of the list.
        steps = len(hashes) - bisect_left(hashes, True, key=known.__contains__)
        if not steps:
            return 0
        return min(chain.prompt_tokens * _ENDS[steps - 1] // chain.prompt_bytes, chain.prompt_tokens - 1)

    def note(self, worker: str, chain: Chain) -> None:
        """The worker is sent this prompt."""
        known = self._by_worker.setdefault(worker, OrderedDict())
        for link in chain.hashes:  # the whole first: of a prompt seen long ago, the last steps go first
            known[link] = None
            known.move_to_end(link)
        for _ in range(len(known) - self._max_entries):
            known.popitem(last=False)

    def forget(self, worker: str) -> None:
        """The worker was started anew, or is gone."""
        self._by_worker.pop(worker, None)
