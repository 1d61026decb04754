"""How far off is the estimate of the work ahead, against serving it all?"""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.fairness import BANDS, FairQueue, Ticket
from tests.gateway.fairness.naive import NaiveQueue
from tests.gateway.fairness.tickets import ticket

WEIGHTS = {"a": 1.0, "b": 0.5, "c": 4.0, "d": 1.0, "e": 2.0}


def test_nothing_is_ahead_where_nobody_waits() -> None:
    assert FairQueue[str]().ahead(ticket()) == 0.0


newcomers = st.builds(
    ticket,
    tenant=st.sampled_from(sorted(WEIGHTS)),
    work=st.integers(1, 100).map(float),
    lane=st.integers(0, 2),
    band=st.sampled_from(BANDS),
    arrived_s=st.integers(0, 400).map(float),
)


def both(tickets: list[Ticket[str]], served_first: int) -> tuple[FairQueue[str], NaiveQueue]:
    """Both queues with these tickets, some of which have been served."""
    queue, naive = FairQueue[str](), NaiveQueue()
    for each in tickets:
        each.weight = WEIGHTS[each.tenant]
        queue.push(each)
        naive.push(each)
    for _ in range(served_first):
        first = queue.peek("llama")
        assert first
        queue.dispatch(first)
        naive.dispatch(first)
    return queue, naive


def largest_of_others(naive: NaiveQueue, of: Ticket[str]) -> float:
    """The largest waiting ticket of each other tenant in the band, together."""
    largest: dict[str, float] = {}
    for each in naive.at((of.model, of.band)):
        if each.tenant != of.tenant:
            largest[each.tenant] = max(largest.get(each.tenant, 0.0), each.total_work)
    return sum(largest.values())


@settings(max_examples=300, deadline=None)
@given(st.lists(newcomers, max_size=40), newcomers, st.integers(0, 20))
def test_within_a_band_the_estimate_is_off_by_less_than_a_ticket_of_each_other_tenant(
    tickets: list[Ticket[str]], newcomer: Ticket[str], served_first: int
) -> None:
    for each in [*tickets, newcomer]:
        each.band = "interactive"
        each.weight = WEIGHTS[each.tenant]
    queue, naive = both(tickets, min(served_first, len(tickets)))

    for asked in [newcomer, *queue]:
        error = abs(queue.ahead(asked) - naive.ahead(asked))
        bound = largest_of_others(naive, asked)
        assert error < bound or error == bound == 0


@settings(max_examples=300, deadline=None)
@given(st.lists(newcomers, max_size=40), newcomers, st.integers(0, 20))
def test_across_bands_the_error_is_that_over_the_share_of_the_band(
    tickets: list[Ticket[str]], newcomer: Ticket[str], served_first: int
) -> None:
    newcomer.weight = WEIGHTS[newcomer.tenant]
    queue, naive = both(tickets, min(served_first, len(tickets)))
    share = {"interactive": 1.0, "default": 0.2, "batch": 0.05}[newcomer.band]
    assume(naive.waiting)
    largest = max(each.total_work for each in [*naive.waiting, newcomer])

    error = abs(queue.ahead(newcomer) - naive.ahead(newcomer))

    assert error <= (largest_of_others(naive, newcomer) + 2 * largest) / share
