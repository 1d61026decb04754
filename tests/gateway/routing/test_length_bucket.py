"""Are prompts kept from waiting behind other prompts, and long ones away from short ones?"""

import pytest

from gateway.model import Worker
from gateway.routing.length_bucket import TOKENS_PER_REQUEST, length_bucket
from tests.gateway.test_model import job, worker


def ranked(workers: list[Worker], bucket: int = 0, turn: int = 0) -> list[str]:
    return [of.id for of in length_bucket(job(bucket=bucket), workers, turn)]


@pytest.mark.parametrize("bucket", [0, 1, 2])
def test_the_least_prefill_still_to_do_comes_first(bucket: int) -> None:
    workers = [worker("long", 1, prefill_tokens=8000), worker("short", 9, prefill_tokens=100), worker("idle")]
    assert ranked(workers, bucket) == ["idle", "short", "long"]


@pytest.mark.parametrize("bucket", [0, 1])
def test_requests_whose_prompts_are_done_weigh_a_little(bucket: int) -> None:
    tokens = TOKENS_PER_REQUEST * 2
    below = [worker("running", 2), worker("reading", 0, prefill_tokens=tokens + 1)]
    above = [worker("running", 2), worker("reading", 0, prefill_tokens=tokens - 1)]
    assert ranked(below, bucket)[0] == "running"
    assert ranked(above, bucket)[0] == "reading"


def test_of_equals_the_long_go_to_the_last_and_the_short_take_turns() -> None:
    workers = [worker("a"), worker("b"), worker("c")]
    assert {ranked(workers, bucket, turn)[0] for bucket in (1, 2) for turn in range(3)} == {"c"}
    assert [ranked(workers, 0, turn)[0] for turn in range(3)] == ["a", "b", "c"]


def test_nobody_waits_for_a_lane_while_another_worker_is_idle() -> None:
    workers = [worker("a"), worker("b", 1, prefill_tokens=500)]
    assert ranked(workers, bucket=2)[0] == "a"
