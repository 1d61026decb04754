"""Is a body refused that would hold up us or a worker, and no other, whatever its strings look like?"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.intake.shape import (
    MANY_BYTES,
    MOST_BRACKETS,
    MOST_LEVELS,
    MOST_VALUES,
    check_levels,
    check_values,
)


def check(field: bytes) -> None:
    check_levels(field, "tools")


def nested(levels: int, inside: bytes = b"") -> bytes:
    """An object of so many levels."""
    return b'{"a":' + b"[" * (levels - 1) + inside + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize("inside", [b"", b'"' + b"]" * 2000 + b'"', rb'"\\", "\"]]]]", "\\\"]]"', b'"\\\\"'])
def test_so_many_levels_pass_and_no_more(inside: bytes) -> None:
    check(nested(MOST_LEVELS, inside))
    with pytest.raises(BadRequest) as refused:
        check(nested(MOST_LEVELS + 1, inside))
    assert refused.value.param == "tools"


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * 10_000 + b"{}]",
        b'{"a":"' + b"[" * 10_000 + b'"}',
        b'{"a":"' + b'\\"[' * 10_000 + b'"}',
        b"[" + nested(MOST_LEVELS - 1) + b"," + nested(MOST_LEVELS - 1) + b"]",
    ],
)
def test_many_brackets_are_no_levels(body: bytes) -> None:
    json.loads(body)
    check(body)


def test_so_many_brackets_are_paired_off_and_no_more() -> None:
    pairs = MOST_BRACKETS // 2 - 1
    check(b"[" + b"[]" * pairs + b"]")
    with pytest.raises(BadRequest):
        check(b"[" + b"[]" * (pairs + 1) + b"]")


@pytest.mark.parametrize("value", [b"1000,", b"1000,1,1,1,1,1,1,1,1,1,1,"])
def test_so_many_values_pass_and_no_more(value: bytes) -> None:
    values = value * (MOST_VALUES // value.count(b","))
    check_values(b"[" + b" " * MANY_BYTES + values + b"1]")
    with pytest.raises(BadRequest) as refused:
        check_values(b"[" + b" " * MANY_BYTES + values + value + b"1]")
    assert refused.value.code == "invalid_json"


def test_a_small_body_is_not_counted() -> None:
    check_values(b"[" + b"1," * (MOST_VALUES + 1) + b"1]")


VALUES = st.recursive(
    st.text(alphabet='[]{}\\",:a', max_size=20),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def levels_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(levels_of, value.values()), default=0)
    return 1 + max(map(levels_of, value), default=0) if isinstance(value, list) else 0


@given(value=VALUES, beneath=st.integers(0, 4))
def test_levels_are_counted_whatever_strings_hold(value: Any, beneath: int) -> None:
    body = b"[" * beneath + json.dumps(value).encode() + b"]" * beneath
    levels = beneath + levels_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.intake.shape.MOST_LEVELS", 3)
        if levels > 3:
            with pytest.raises(BadRequest):
                check(body)
        else:
            check(body)
