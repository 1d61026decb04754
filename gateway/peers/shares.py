"""How many of a worker's places may one process fill, while others fill theirs?

Places go by max-min fairness: who wants fewer than an equal part gets what it wants, and what that leaves is
divided equally among the rest (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). So nobody's part
is kept for a process without requests, and nobody's queue waits behind another's for ever.
"""

from collections.abc import Iterable


def ceiling(limit: int, held: int, content: Iterable[int], wanting: int, rank: int) -> int:
    """How many requests a process may have at a worker at once, the one about to be placed included.

    limit: for all processes together. held: how many the others have there. content: how many each of those
    others has that has none waiting. wanting: how many processes have some waiting; the one that asks counts
    as one of them. rank: its place among these, from 0. All must see the same ranks, and each rank must come
    to be low by and by: the lowest get what cannot be divided, and that may be all there is.

    Processes that know exactly what the others have never exceed the limit together: as long as they act one
    after the other, whatever their ranks.
    """
    return max(0, min(limit - held, _part(limit, content, wanting, rank)))


def blind_share(limit: int, processes: int, rank: int) -> int:
    """The same where nothing is known of the others but how many they are: an equal share, at least 1.

    Together they exceed the limit only where they are more than it.
    """
    return max(1, _part(limit, (), processes, rank))


def _part(limit: int, content: Iterable[int], wanting: int, rank: int) -> int:
    left, sharing = limit, wanting
    rest = sorted(content)
    sharing += len(rest)
    for holds in rest:
        if holds * sharing > left:
            break  # it has more than an equal part: it is entitled to no more than that
        left -= holds
        sharing -= 1
    return left // sharing + (rank < left % sharing)
