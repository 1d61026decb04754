"""Does the shortest go first, and does nobody wait for ever?"""

from hypothesis import given
from hypothesis import strategies as st

from gateway.fairness.line import AGING, Line, Rank
from tests.gateway.fairness.tickets import ticket

ranks = st.tuples(st.integers(0, 20).map(float), st.integers(0, 1000))


def line_of(ranked: list[Rank]) -> Line:
    line = Line()
    for rank in ranked:
        line.add(rank, ticket(work=rank[0]))
    return line


@given(st.lists(ranks, unique=True), st.data())
def test_tickets_leave_by_rank_whoever_left_before(ranked: list[Rank], data: st.DataObject) -> None:
    line = line_of(ranked)
    gone = data.draw(st.sets(st.sampled_from(ranked)) if ranked else st.just(set()))
    for rank in gone:
        line.remove(rank)

    for expected in sorted(set(ranked) - gone):
        assert line.head_rank == expected
        assert line.head.total_work == expected[0]
        line.remove(expected)
    assert not line


@given(st.lists(ranks, unique=True), ranks)
def test_the_work_before_a_rank_is_that_of_lower_ranks(ranked: list[Rank], asked: Rank) -> None:
    assert line_of(ranked).work_before(asked) == sum(rank[0] for rank in ranked if rank < asked)


def test_a_second_of_waiting_is_worth_a_quarter_of_a_second_of_work() -> None:
    assert 1 / AGING == 4
