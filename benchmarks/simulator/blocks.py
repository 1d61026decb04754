"""How much KV cache is free, and how much of a prompt is in it? vLLM's prefix cache, counted in blocks."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

BLOCK_TOKENS = 16
TOKEN_BYTES = 4  # of text, as is usual for English; and of a token id that is packed into 32 bits
_BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES


def blocks_of(tokens: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)


def chain(content: bytes, salt: str = "") -> tuple[int, ...]:
    """A hash for each full block of a prompt that is TOKEN_BYTES a token, each over all that comes before.

    Equal only where salt and everything up to the block's end are equal. Valid in this process alone.
    """
    return tuple(_links(content, hash(salt)))


def _links(content: bytes, parent: int) -> Iterator[int]:
    for start in range(0, len(content) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        parent = hash((parent, content[start : start + _BLOCK_BYTES]))
        yield parent


class KvBlocks:
    """The blocks of one engine. A block is blank, private to one request, or known by its hash.

    Known blocks are shared by those who ask for the same prefix; when nobody uses them they stay until their
    room is needed, the least recently used first. Blank room is taken before any of them is forgotten.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blank = capacity
        self._users: dict[int, int] = {}  # known and in use: by how many
        self._idle: OrderedDict[int, None] = OrderedDict()  # known and in use by nobody, oldest first

    @property
    def free(self) -> int:
        """Blocks that can be taken: blank or idle."""
        return self._blank + len(self._idle)

    def known(self, hashes: Sequence[int], most: int) -> int:
        """How many of the first `most` hashes are known, up to the first that is not."""
        for count, link in enumerate(hashes[:most]):
            if link not in self._users and link not in self._idle:
                return count
        return min(most, len(hashes))

    def idle_among(self, hashes: Sequence[int]) -> int:
        """How many of these known blocks are in use by nobody, so that sharing them takes free room."""
        return sum(link in self._idle for link in hashes)

    def share(self, hashes: Sequence[int]) -> None:
        """Use these known blocks."""
        for link in hashes:
            if link in self._idle:
                del self._idle[link]
            self._users[link] = self._users.get(link, 0) + 1

    def take(self, count: int) -> bool:
        """Make so many blocks private; False, and nothing done, where there are not so many."""
        if count > self.free:
            return False
        self._blank -= count
        while self._blank < 0:
            self._idle.popitem(last=False)
            self._blank += 1
        return True

    def publish(self, link: int) -> bool:
        """Make a private block known; False, and it stays private, where an equal one is known already."""
        if link in self._users or link in self._idle:
            return False
        self._users[link] = 1
        return True

    def give_back(self, hashes: Sequence[int], private: int) -> None:
        """The end of a prefix becomes idle before its beginning, so that it is forgotten first."""
        self._blank += private
        for link in reversed(hashes):
            users = self._users.pop(link) - 1
            if users:
                self._users[link] = users
            else:
                self._idle[link] = None
