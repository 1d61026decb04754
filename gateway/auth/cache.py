"""What has the directory said of keys, and until when does that hold?

A key that was confirmed is
    fresh    until REFRESH_S thereafter: served
    ageing   until CACHE_S: served, while the directory is asked again in the background
    stale    until STALE_S: served only once the directory, asked again, did not answer
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from math import inf
from operator import attrgetter

from gateway.auth.directory import Found
from gateway.model import Caller

CACHE_S = 10.0  # the longest that a revoked key can go on if the news of it was lost
REFRESH_S = 5.0  # half of that: a key in use more often than every 5 s never waits for the directory
STALE_S = 600.0  # while the directory is away, keys in use go on working: long enough to mend or replace it
RETRY_S = 1.0  # between two questions for one key while they are in vain
MAX_ENTRIES = 10_000  # of either kind; 7 MB, measured, with those of one tenant
# Tables are searched by so much of a hash, and then the whole is compared in constant time. It is enough that
# no two keys share it, and nobody can steer the hash of a guess, so how long a search takes tells nothing.
INDEX_BYTES = 16


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """What is known of a hash. Unless said otherwise it holds for good."""

    digest: bytes
    caller: Caller | None
    expires_at: float  # seconds since 1970
    refresh_at: float = inf  # monotonic seconds, here and below
    good_until: float = inf  # not before refresh_at


NOBODY = Entry(digest=b"", caller=None, expires_at=-inf)


@dataclass(slots=True, eq=False, kw_only=True)
class Confirmed(Entry):
    """A key of the directory."""

    found: Found
    confirmed_at: float  # when it was asked, not when it answered: that may have been out of date by then

    @classmethod
    def at(cls, asked_at: float, digest: bytes, found: Found, caller: Caller) -> "Confirmed":
        return cls(
            digest=digest,
            caller=caller,
            expires_at=inf if found.expires_at is None else found.expires_at,
            refresh_at=asked_at + REFRESH_S,
            good_until=asked_at + CACHE_S,
            found=found,
            confirmed_at=asked_at,
        )


class Cache:
    """Keys that the directory knows, the least recently used forgotten first; and, apart from those so that
    they cannot drive them out, hashes that it does not know."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[bytes, Confirmed] = OrderedDict()
        self._strangers: dict[bytes, float] = {}  # until when; the oldest first

    def get(self, digest: bytes) -> Confirmed | None:
        index = digest[:INDEX_BYTES]
        entry = self._entries.get(index)
        if entry is None or not compare_digest(entry.digest, digest):
            return None
        self._entries.move_to_end(index)
        return entry

    def put(self, entry: Confirmed) -> None:
        index = entry.digest[:INDEX_BYTES]
        self._strangers.pop(entry.digest, None)
        self._entries[index] = entry
        self._entries.move_to_end(index)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def deny(self, digest: bytes, asked_at: float) -> None:
        """The directory knows no such key, or no longer."""
        self._entries.pop(digest[:INDEX_BYTES], None)
        self._strangers.pop(digest, None)  # to stand last again
        self._strangers[digest] = asked_at + CACHE_S
        if len(self._strangers) > self._max_entries:
            del self._strangers[next(iter(self._strangers))]

    def is_stranger(self, digest: bytes, now: float) -> bool:
        return now < self._strangers.get(digest, now)

    def outlast(self, digest: bytes, now: float) -> Confirmed | None:
        """The directory is away: let an entry hold a while longer. None if there is none that may."""
        entry = self._entries.get(digest[:INDEX_BYTES])
        if entry is None or now >= entry.confirmed_at + STALE_S:
            return None
        stale_until = entry.confirmed_at + STALE_S
        # Between these two the next question is asked in the background, so that a hot key never waits.
        entry.refresh_at = min(now + RETRY_S, stale_until)
        entry.good_until = max(entry.good_until, min(now + 2 * RETRY_S, stale_until))
        return entry

    def forget(self, what: str) -> None:
        """ "key:<id>" or "tenant:<id>" has changed: drop what is known of it, and all that was unknown."""
        kind, _, name = what.partition(":")
        if kind in ("key", "tenant"):
            id_of = attrgetter(f"{kind}_id")  # once for all of them: news may come in great numbers
            for index in [index for index, entry in self._entries.items() if id_of(entry.found) == name]:
                del self._entries[index]
        self._strangers.clear()

    def doubt(self) -> None:
        """Anything may have changed: make all stale. Nothing is dropped, or a directory that came back for
        just a moment would end what outlasted its absence."""
        for entry in self._entries.values():
            entry.refresh_at = entry.good_until = -inf
        self._strangers.clear()

    def revise(self, caller_of: Callable[[Found], Caller | None]) -> None:
        """The file has changed, and with it perhaps whose the directory's keys are."""
        for index, entry in list(self._entries.items()):
            entry.caller = caller_of(entry.found)
            if entry.caller is None:
                del self._entries[index]
        self._strangers.clear()
