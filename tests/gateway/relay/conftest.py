"""Which ways do the tests of streams go? All of them."""

from functools import partial

import pytest

from tests.gateway.relay.relaying import Streaming, StreamOf, Way


@pytest.fixture(params=Way, ids=lambda way: way.value)
def stream_of(request: pytest.FixtureRequest) -> StreamOf:
    """Makes a stream of a script of reads."""
    return partial(Streaming, request.param)
