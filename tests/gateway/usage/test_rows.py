"""Are rows whole and in order?"""

import msgspec

from gateway.usage import UsageRow, rows_of
from gateway.usage.rows import Sums


def test_each_sum_is_a_row_in_the_order_of_its_labels() -> None:
    sums: Sums = {
        ("2026-11-30", "globex", "g-1", "small", "ok"): (1, 10, 0, 5),
        ("2026-11-30", "acme", "a-2", "small", "ok"): (2, 20, 4, 6),
        ("2026-11-29", "globex", "g-1", "small", "client_gone"): (3, 30, 8, 7),
    }

    rows = rows_of(sums)

    assert rows == [
        UsageRow("2026-11-29", "globex", "g-1", "small", "client_gone", 3, 30, 8, 7),
        UsageRow("2026-11-30", "acme", "a-2", "small", "ok", 2, 20, 4, 6),
        UsageRow("2026-11-30", "globex", "g-1", "small", "ok", 1, 10, 0, 5),
    ]


def test_a_row_is_an_object_with_names_in_json() -> None:
    row = UsageRow("2026-11-30", "acme", "acme-1", "small", "ok", 1, 10, 4, 5)

    assert msgspec.json.decode(msgspec.json.encode(row)) == {
        "day": "2026-11-30",
        "tenant": "acme",
        "key": "acme-1",
        "model": "small",
        "outcome": "ok",
        "requests": 1,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 5,
    }
