"""Are figures shown in their units, and held to their targets?"""

import pytest

from benchmarks.targets import Row, table


@pytest.mark.parametrize(
    ("row", "target", "met"),
    [
        (Row("any", 300.0, "ms", at_most=300), "≤ 300 ms", True),
        (Row("any", 300.1, "ms", at_most=300), "≤ 300 ms", False),
        (Row("any", 1, at_least=1), "≥ 1", True),
        (Row("any", 0, at_least=1), "≥ 1", False),
        (Row("any", 24, "", 26.82, 1), "≥ 1, ≤ 26.82", True),
        (Row("any", 27, "", 26.82, 1), "≥ 1, ≤ 26.82", False),
        (Row("any", 0, "", 26.82, 1), "≥ 1, ≤ 26.82", False),
        (Row("any", 20, "", 20, 20), "= 20", True),
        (Row("any", 19, "", 20, 20), "= 20", False),
        (Row("any", 21, "", 20, 20), "= 20", False),
        (Row("any", 1e9, "ms"), "", None),
    ],
)
def test_a_target_is_met_within_its_bounds_and_a_row_without_one_judges_nothing(
    row: Row, target: str, met: bool | None
) -> None:
    assert (row.target, row.met) == (target, met)


def test_the_table_shows_value_target_and_verdict() -> None:
    shown = table(
        "Redis freezes",
        [Row("wait", 179.264, "ms", at_most=300), Row("granted", 0, at_least=1), Row("context", 6004)],
    )

    assert shown.title == "Redis freezes"
    assert [list(column.cells) for column in shown.columns] == [
        ["wait", "granted", "context"],
        ["179.26 ms", "0", "6004"],
        ["≤ 300 ms", "≥ 1", ""],
        ["[green]yes", "[red]no", ""],
    ]
