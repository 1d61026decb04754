"""Is a caller asked to wait no longer than it has time for?"""

from math import inf

import pytest

from gateway.intake.patience import max_wait_s
from gateway.model import Fields

SDK, OWN = b"x-stainless-read-timeout", b"x-gateway-max-wait-ms"


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, inf),
        ({b"accept": b"*/*"}, inf),
        ({SDK: b"600"}, 600.0),
        ({SDK: b"0.5"}, 0.5),
        ({OWN: b"250"}, 0.25),
        ({SDK: b"600", OWN: b"250"}, 0.25),
        ({OWN: b"250", SDK: b"0.1"}, 0.1),
    ],
)
def test_the_least_that_a_header_says_holds(fields: Fields, seconds: float) -> None:
    assert max_wait_s(fields) == seconds


@pytest.mark.parametrize("value", [b"", b"soon", b"-1", b"0", b"nan", b"inf", b"\xff", b"1e999", b"1, 2"])
def test_what_is_no_time_says_nothing(value: bytes) -> None:
    assert max_wait_s({SDK: value, OWN: value}) == inf
