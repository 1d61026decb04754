"""Are the settings of sections safe?"""

import pytest
from pydantic import SecretStr

from gateway.settings import Auth, Routing, Upstream
from tests.gateway.settings.accepting import accepts


def test_a_secret_shows_itself_nowhere() -> None:
    assert "hunter2" not in repr(Auth(cache_salt_secret=SecretStr("hunter2")))


def test_idle_connections_are_given_up_before_vllm_closes_them() -> None:
    assert Upstream().idle_s < 5


@pytest.mark.parametrize("policy", ["length_bucket", "least_work", "least_requests", "round_robin"])
def test_each_policy_may_be_chosen(policy: str) -> None:
    assert accepts(Routing, policy=policy)


@pytest.mark.parametrize("most", ["max_prefills", "max_long_prefills"])
def test_a_worker_that_could_read_no_prompt_is_refused(most: str) -> None:
    assert accepts(Routing, **{most: 1})
    assert not accepts(Routing, **{most: 0})
