"""Does the worker with the fewest requests come first?"""

from gateway.routing.least_requests import least_requests
from tests.gateway.test_model import job, worker


def test_fewer_requests_come_first_whatever_their_length() -> None:
    workers = [worker("c", 3), worker("a", 1, prefill_s=9.0), worker("b", 2)]
    assert [of.id for of in least_requests(job(), workers, 0, 0.0)] == ["a", "b", "c"]


def test_equals_take_turns() -> None:
    workers = [worker("a", 1), worker("b", 1), worker("c", 2)]
    firsts = [least_requests(job(), workers, turn, 0.0)[0].id for turn in range(6)]
    assert set(firsts) == {"a", "b"}
    assert firsts.count("b") >= 2
