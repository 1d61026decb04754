"""What becomes of an error of Redis' client library? It ends here, at the edge of the store."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import RedisError

from gateway.errors import StoreUnavailable

RETRY_AFTER_S = 1


@contextmanager
def translated() -> Iterator[None]:
    """Raises StoreUnavailable in place of what redis-py raises; its text goes into `detail`."""
    try:
        yield
    except RedisError as error:
        raise StoreUnavailable(
            "The store of this gateway does not answer. Try again shortly.",
            retry_after_s=RETRY_AFTER_S,
            detail=f"{type(error).__name__}: {error}",
        ) from None
