"""Is the tenant at the top the one that was served least, with entries out of date below?"""

from hypothesis import given
from hypothesis import strategies as st

from gateway.fairness.flows import SLACK, Flow, Ranking
from tests.gateway.fairness.tickets import ticket


def waiting(tenant: str, counter: float = 0.0, since: int = 0) -> Flow:
    flow = Flow(tenant)
    flow.counter, flow.since = counter, since
    flow.add((0.0, 0), ticket(tenant))
    return flow


def ranked(*flows: Flow) -> Ranking:
    ranking = Ranking(0)
    for flow in flows:
        ranking.add(flow)
    return ranking


def leave(flow: Flow, ranking: Ranking) -> None:
    (only,) = flow.tickets
    assert flow.remove((0.0, 0), only)
    ranking.discard()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=60))
def test_the_least_served_comes_first_however_counters_move(moves: list[tuple[int, int]]) -> None:
    flows = [waiting(str(number), since=number) for number in range(5)]
    ranking = ranked(*flows)
    for number, counter in moves:
        flow = flows[number]
        fell = counter < flow.counter
        flow.counter = float(counter)
        if fell:
            ranking.update(flow)

        assert ranking.first() is min(flows, key=lambda each: (each.counter, each.since))


def test_of_equals_goes_first_who_has_waited_longer() -> None:
    late, early = waiting("late", since=2), waiting("early", since=1)

    assert ranked(late, early).first() is early


def test_held_tenants_are_passed_over_and_keep_their_places() -> None:
    a, b, c = (waiting(tenant, counter) for counter, tenant in enumerate("abc"))
    ranking = ranked(c, b, a)
    ranking.update(a)  # a second entry

    assert ranking.first({"a", "b"}.__contains__) is c
    assert ranking.first({"a", "b", "c"}.__contains__) is None
    assert ranking.first({"a"}.__contains__) is b
    assert ranking.first() is a


def test_a_flow_that_has_left_is_not_first() -> None:
    a, b = waiting("a", 1), waiting("b", 2)
    ranking = ranked(a, b)
    leave(a, ranking)

    assert ranking.first() is b
    assert len(ranking) == 1
    leave(b, ranking)
    assert ranking.first() is None


def test_entries_out_of_date_do_not_pile_up() -> None:
    least, busy = waiting("least", -1000.0), waiting("busy")
    ranking = ranked(least, busy)
    for counter in range(1000):
        busy.counter = -counter / 2
        ranking.update(busy)

    assert len(ranking._heap) <= 2 * len(ranking) + SLACK + 1
    leave(least, ranking)
    assert ranking.first() is busy


def test_rounding_is_shed_when_nothing_waits() -> None:
    flow = Flow("a")
    tickets = [ticket(work=work) for work in (0.1, 0.2, 0.3)]
    for number, each in enumerate(tickets):
        flow.add((0.0, number), each)
    for number, each in enumerate(tickets):
        flow.remove((0.0, number), each)

    assert flow.work == 0.0
    assert flow.is_idle


def test_a_tenant_serves_the_shortest_of_its_open_lanes() -> None:
    flow = Flow("a")
    short, middle, long = (ticket(lane=lane) for lane in range(3))
    for number, each in enumerate((long, middle, short)):
        flow.add((float(each.lane), number), each)

    assert flow.first(range(3)) is short
    assert flow.first([1, 2]) is middle
