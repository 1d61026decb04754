"""Does round robin look at nothing but the turn?"""

from gateway.routing.round_robin import round_robin
from tests.gateway.test_model import job, worker


def test_workers_take_turns_whatever_they_hold() -> None:
    workers = [worker("busy", 4, long_prefills=1, prefill_s=9.0), worker("idle")]
    firsts = [round_robin(job(), workers, turn, 0.0)[0].id for turn in range(4)]
    assert firsts == ["busy", "idle", "busy", "idle"]
