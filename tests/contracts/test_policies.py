"""Does every policy keep to what a policy is? Each sorts all workers, and does nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import Worker
from gateway.routing import POLICIES, Policy
from gateway.settings import Routing
from tests.gateway.test_model import job

every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())

small = st.integers(0, 5)
fleets = st.lists(st.tuples(small, small, small), max_size=6).map(
    lambda rows: [Worker(f"w{n}", a, 4, b * 100, c * 100) for n, (a, b, c) in enumerate(rows)]
)


@every_policy
@given(workers=fleets, bucket=st.integers(0, 3), turn=st.integers(0, 50))
def test_a_policy_sorts_all_workers_and_changes_none(
    policy: Policy, workers: list[Worker], bucket: int, turn: int
) -> None:
    before = list(workers)
    ranked = policy(job(bucket=bucket), workers, turn)
    assert workers == before
    assert sorted(worker.id for worker in ranked) == [worker.id for worker in before]
    assert all(worker in before for worker in ranked)


@every_policy
@given(workers=fleets, bucket=st.integers(0, 3), turn=st.integers(0, 50))
def test_a_policy_decides_the_same_again(
    policy: Policy, workers: list[Worker], bucket: int, turn: int
) -> None:
    first = list(policy(job(bucket=bucket), workers, turn))
    assert list(policy(job(bucket=bucket), tuple(workers), turn)) == first


@every_policy
def test_a_policy_of_no_workers_gives_none(policy: Policy) -> None:
    assert list(policy(job(), [], 7)) == []


def test_the_policies_are_those_that_the_configuration_offers() -> None:
    for name in POLICIES:
        assert Routing.model_validate({"policy": name}).policy == name
    assert Routing().policy in POLICIES
