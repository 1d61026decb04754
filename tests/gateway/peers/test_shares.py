"""Do processes together fill a worker, and never more than fill it?"""

from hypothesis import given
from hypothesis import strategies as st

from gateway.peers.shares import blind_share, ceiling

LIMITS = st.integers(1, 300)
HOLDINGS = st.lists(st.integers(0, 100), max_size=12)


def test_alone_a_process_has_the_whole_worker() -> None:
    assert ceiling(16, 0, [], 1, 0) == 16
    assert blind_share(16, 1, 0) == 16


def test_two_that_want_more_have_half_each_and_leave_what_a_third_has() -> None:
    assert ceiling(16, 4, [4], 2, 0) == 6
    assert ceiling(16, 10, [4], 2, 0) == 6


def test_who_has_more_than_an_equal_part_and_wants_no_more_is_not_left_all_of_it() -> None:
    assert ceiling(16, 0, [14], 2, 0) == 6  # of 16 in three parts, the first has one more
    assert ceiling(16, 0, [14], 2, 1) == 5


def test_what_cannot_be_divided_goes_to_the_lowest_ranks() -> None:
    assert [ceiling(10, 0, [], 4, rank) for rank in range(4)] == [3, 3, 2, 2]
    assert [ceiling(1, 0, [], 3, rank) for rank in range(3)] == [1, 0, 0]


def test_nobody_has_less_than_no_place_where_others_have_too_many() -> None:
    assert ceiling(8, 30, [30], 1, 0) == 0


def test_blind_each_has_an_equal_share_and_the_first_have_what_is_left_over() -> None:
    assert [blind_share(10, 4, rank) for rank in range(4)] == [3, 3, 2, 2]


def test_blind_nobody_is_without_a_place() -> None:
    assert [blind_share(2, 4, rank) for rank in range(4)] == [1, 1, 1, 1]


@given(LIMITS, HOLDINGS)
def test_what_no_other_wants_is_all_for_the_one_that_does(limit: int, content: list[int]) -> None:
    assert ceiling(limit, sum(content), content, 1, 0) == max(0, limit - sum(content))


@given(LIMITS, HOLDINGS, st.integers(1, 12))
def test_the_parts_of_those_that_want_more_fill_what_the_others_leave(
    limit: int, content: list[int], wanting: int
) -> None:
    small = [held for held in content if held * (len(content) + wanting) <= limit]
    parts = [ceiling(limit, sum(small), small, wanting, rank) for rank in range(wanting)]
    assert sum(parts) == limit - sum(small)
    assert max(parts) - min(parts) <= 1


@given(LIMITS, HOLDINGS, st.integers(1, 12))
def test_no_part_is_smaller_than_an_equal_one_of_all_processes(
    limit: int, content: list[int], wanting: int
) -> None:
    equal = limit // (len(content) + wanting)
    assert ceiling(limit, 0, content, wanting, wanting - 1) >= equal


@given(
    LIMITS,
    st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.integers(0, 7)), max_size=60),
)
def test_processes_that_act_one_after_the_other_never_exceed_the_limit(
    limit: int, acts: list[tuple[int, bool, int]]
) -> None:
    """Each act: who, whether it wants to keep a queue afterwards, and the rank it takes itself to have."""
    held, waits = [0] * 8, [False] * 8
    for who, keeps_waiting, rank in acts:
        others = [(held[other], waits[other]) for other in range(8) if other != who]
        content = [holds for holds, wants in others if not wants]
        wanting = 1 + sum(wants for _, wants in others)
        most = ceiling(limit, sum(holds for holds, _ in others), content, wanting, rank % wanting)
        held[who] = max(held[who], most)
        waits[who] = keeps_waiting
        assert sum(held) <= limit


@given(LIMITS, st.integers(1, 40))
def test_blind_the_limit_is_kept_by_as_many_as_it_has_places_for(limit: int, processes: int) -> None:
    total = sum(blind_share(limit, processes, rank) for rank in range(processes))
    assert total == max(limit, processes)
