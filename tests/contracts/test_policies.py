"""Does every policy keep to what a policy is? Each sorts workers, and does nothing else."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import Worker
from gateway.routing import POLICIES, Policy
from gateway.settings import Routing
from tests.gateway.test_model import job

every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())

small = st.integers(0, 5)
fleets = st.lists(st.tuples(small, small, small, small), max_size=9).map(
    lambda rows: [
        Worker(f"w{n}", held, 4, long_prefills=long, prefill_s=prefill / 8, own_s=own / 8)
        for n, (held, long, prefill, own) in enumerate(rows)
    ]
)
waits_s = st.floats(0, 10)


@every_policy
@given(workers=fleets, is_long=st.booleans(), turn=st.integers(0, 50), waited_s=waits_s)
def test_a_policy_sorts_workers_and_changes_none(
    policy: Policy, workers: list[Worker], is_long: bool, turn: int, waited_s: float
) -> None:
    before = list(workers)
    ranked = policy(job(is_long=is_long), workers, turn, waited_s)
    assert workers == before
    assert all(worker in before for worker in ranked)
    assert len({worker.id for worker in ranked}) == len(ranked)


@every_policy
@given(workers=fleets, is_long=st.booleans(), turn=st.integers(0, 50))
def test_a_policy_leaves_none_out_for_ever(
    policy: Policy, workers: list[Worker], is_long: bool, turn: int
) -> None:
    ranked = policy(job(is_long=is_long), workers, turn, inf)
    assert {worker.id for worker in ranked} == {worker.id for worker in workers}


@every_policy
@given(workers=fleets, is_long=st.booleans(), turn=st.integers(0, 50), waited_s=waits_s)
def test_a_policy_decides_the_same_again(
    policy: Policy, workers: list[Worker], is_long: bool, turn: int, waited_s: float
) -> None:
    asked = job(is_long=is_long)
    first = list(policy(asked, workers, turn, waited_s))
    assert list(policy(asked, tuple(workers), turn, waited_s)) == first


@every_policy
def test_a_policy_of_no_workers_gives_none(policy: Policy) -> None:
    assert list(policy(job(is_long=True), [], 7, 0.0)) == []


def test_the_policies_are_those_that_the_configuration_offers() -> None:
    for name in POLICIES:
        assert Routing.model_validate({"policy": name}).policy == name
    assert Routing().policy in POLICIES
