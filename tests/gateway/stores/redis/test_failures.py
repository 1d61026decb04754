"""Do errors of the client library end at the store's edge?"""

import pytest
import redis

from gateway.errors import StoreUnavailable
from gateway.stores.redis.failures import translated


@pytest.mark.parametrize("kind", [redis.ConnectionError, redis.TimeoutError, redis.ResponseError])
def test_an_error_of_redis_becomes_the_store_being_away_and_its_reason_is_for_the_log(
    kind: type[redis.RedisError],
) -> None:
    with pytest.raises(StoreUnavailable) as caught, translated():
        raise kind("Error 111 connecting to 10.0.0.7:6379")

    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
    assert "10.0.0.7" not in caught.value.message
    assert caught.value.detail == f"{kind.__name__}: Error 111 connecting to 10.0.0.7:6379"
    assert caught.value.__suppress_context__


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError
