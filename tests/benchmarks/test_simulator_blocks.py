"""Does the prefix cache share what is equal, forget the oldest first, and lose no block?"""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulator.blocks import BLOCK_TOKENS, TOKEN_BYTES, KvBlocks, blocks_of, chain

BLOCK = BLOCK_TOKENS * TOKEN_BYTES


def test_a_started_block_counts_as_one() -> None:
    assert [blocks_of(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_a_chain_has_a_link_for_each_full_block() -> None:
    assert [len(chain(b"a" * length)) for length in (BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK)] == [
        0,
        1,
        1,
        2,
    ]


def test_a_link_tells_of_all_that_comes_before_it_and_of_the_salt() -> None:
    first, second, last = b"a" * BLOCK, b"b" * BLOCK, b"c" * BLOCK

    assert chain(first + second)[0] == chain(first + last)[0]
    assert chain(first + last)[1] != chain(second + last)[1]
    assert chain(first, "one")[0] != chain(first, "other")[0]
    assert chain(first + first)[0] != chain(first + first)[1]


def test_known_blocks_are_those_up_to_the_first_unknown() -> None:
    blocks = KvBlocks(8)
    blocks.take(3)
    for link in (1, 2, 4):
        blocks.publish(link)

    assert blocks.known([1, 2, 3, 4], 9) == 2
    assert blocks.known([1, 2], 9) == 2
    assert blocks.known([1, 2], 1) == 1


def test_what_nobody_uses_is_still_known_until_its_room_is_needed_the_oldest_first() -> None:
    blocks = KvBlocks(3)
    for link in (1, 2):
        blocks.take(1)
        blocks.publish(link)
        blocks.give_back([link], 0)
    blocks.share([1])
    blocks.give_back([1], 0)  # now the younger one

    blocks.take(1)
    assert (blocks.known([1], 1), blocks.known([2], 1)) == (1, 1)  # blank room first
    blocks.take(1)
    assert (blocks.known([1], 1), blocks.known([2], 1)) == (1, 0)


def test_of_a_prefix_the_end_is_forgotten_first() -> None:
    blocks = KvBlocks(2)
    blocks.take(2)
    for link in (1, 2):
        blocks.publish(link)
    blocks.give_back([1, 2], 0)

    blocks.take(1)

    assert blocks.known([1, 2], 2) == 1


def test_a_shared_block_is_free_when_the_last_has_given_it_back() -> None:
    blocks = KvBlocks(1)
    blocks.take(1)
    blocks.publish(1)
    assert blocks.idle_among([1]) == 0
    blocks.share([1])

    blocks.give_back([1], 0)
    assert blocks.free == 0
    blocks.give_back([1], 0)

    assert blocks.free == 1
    assert blocks.idle_among([1]) == 1


def test_a_second_block_like_a_known_one_stays_private() -> None:
    blocks = KvBlocks(2)
    blocks.take(2)

    assert blocks.publish(1)
    assert not blocks.publish(1)
    blocks.give_back([1], 0)
    assert not blocks.publish(1)


def test_more_than_is_free_is_not_taken_at_all() -> None:
    blocks = KvBlocks(2)

    assert not blocks.take(3)
    assert blocks.free == 2
    assert blocks.take(2)
    assert blocks.free == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=60))
def test_no_block_is_lost_or_made(acts: list[tuple[int, int, bool]]) -> None:
    blocks = KvBlocks(12)
    held: list[tuple[list[int], int]] = []
    for family, length, gives_back in acts:
        if gives_back and held:
            blocks.give_back(*held.pop(family % len(held)))
            continue
        hashes = [family * 10 + place for place in range(length)]
        hits = blocks.known(hashes, length)
        if blocks.free - blocks.idle_among(hashes[:hits]) < length - hits:
            continue
        blocks.share(hashes[:hits])
        assert blocks.take(length - hits)
        published = [link for link in hashes[hits:] if blocks.publish(link)]
        held.append((hashes[:hits] + published, length - hits - len(published)))
        shared = {link for links, _ in held for link in links}
        assert blocks.free == 12 - len(shared) - sum(private for _, private in held)
    for hashes, private in held:
        blocks.give_back(hashes, private)
    assert blocks.free == 12
