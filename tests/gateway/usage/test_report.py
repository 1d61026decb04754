"""Are rows summed by what was asked for, and told so that people and programs can read it?"""

import csv
import io

import msgspec
import pytest
from rich.console import Console

from gateway.usage import Report, UsageRow, dimensions

ROWS = [
    UsageRow("2026-11-30", "globex", "g-1", "small", "ok", 1, 10, 0, 5),
    UsageRow("2026-11-30", "acme", "a-1", "small", "ok", 1_000, 2_000_000, 300, 40_000),
    UsageRow("2026-11-29", "acme", "a-1", "small", "ok", 2, 20, 4, 6),
    UsageRow("2026-11-30", "acme", "a-2", "large", "client_gone", 3, 30, 8, 7),
]
TOTAL = {"requests": 1_006, "prompt_tokens": 2_000_060, "cached_tokens": 312, "completion_tokens": 40_018}


def measured(requests: int, prompt: int, cached: int, completion: int) -> dict[str, str | int]:
    return {
        "requests": requests,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "completion_tokens": completion,
    }


def test_rows_are_summed_by_the_dimensions_and_sorted_in_their_order() -> None:
    report = Report.of(ROWS, ("tenant", "day"))

    assert report.data == [
        {"tenant": "acme", "day": "2026-11-29"} | measured(2, 20, 4, 6),
        {"tenant": "acme", "day": "2026-11-30"} | measured(1_003, 2_000_030, 308, 40_007),
        {"tenant": "globex", "day": "2026-11-30"} | measured(1, 10, 0, 5),
    ]
    assert report.total == TOTAL


@pytest.mark.parametrize(
    "by", [("day",), ("key",), ("model", "outcome"), ("day", "tenant", "key", "outcome")]
)
def test_sums_are_of_the_same_total_by_whatever_they_are_made(by: tuple[str, ...]) -> None:
    report = Report.of(ROWS, by)

    assert {name: sum(int(line[name]) for line in report.data) for name in TOTAL} == report.total == TOTAL
    assert all(tuple(line)[: len(by)] == by for line in report.data)


def test_without_rows_there_are_no_lines_and_a_total_of_nothing() -> None:
    assert Report.of([], ("day",)) == Report(("day",), [], measured(0, 0, 0, 0))


def test_csv_has_a_header_and_plain_numbers() -> None:
    text = Report.of(ROWS, ("tenant", "model")).as_csv()

    assert text.splitlines()[:2] == [
        "tenant,model,requests,prompt_tokens,cached_tokens,completion_tokens",
        "acme,large,3,30,8,7",
    ]
    assert [row["requests"] for row in csv.DictReader(io.StringIO(text))] == ["3", "1002", "1"]
    assert "\r" not in text


def test_json_is_an_object_of_lines_and_their_total() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Report.of(ROWS[:1], ("tenant",)))) == {
        "by": ["tenant"],
        "data": [{"tenant": "globex"} | measured(1, 10, 0, 5)],
        "total": measured(1, 10, 0, 5),
    }


def printed(report: Report) -> list[str]:
    """The table's lines."""
    out = io.StringIO()
    Console(file=out, width=1_000).print(report.as_table())
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_table_has_numbers_to_the_right_with_separators_and_a_total() -> None:
    lines = printed(Report.of(ROWS, ("tenant", "model")))

    assert [line for line in lines if "─" not in line] == [
        "                            prompt  cached  completion",
        "tenant  model  requests     tokens  tokens      tokens",
        "acme    large         3         30       8           7",
        "acme    small     1,002  2,000,020     304      40,006",
        "globex  small         1         10       0           5",
        "total             1,006  2,000,060     312      40,018",
    ]
    assert len(lines) == 8  # with a rule above the first and below the last


def test_a_table_cuts_and_folds_nothing() -> None:
    row = UsageRow("2026-11-30", "t" * 64, "k" * 64, "m" * 200, "ok", 1, 2, 3, 4)

    assert any("k" * 64 + "  " + "m" * 200 in line for line in printed(Report.of([row], ("key", "model"))))


@pytest.mark.parametrize("name", ["org/model:cat:8b", "[bold]x[/bold]"])
def test_a_name_shows_as_it_is(name: str) -> None:
    row = UsageRow("2026-11-30", "acme", "a-1", name, "ok", 1, 2, 3, 4)

    assert any(line.startswith(f"{name}  ") for line in printed(Report.of([row], ("model",))))


def test_dimensions_are_read_from_a_list() -> None:
    assert dimensions("model, day") == ("model", "day")


@pytest.mark.parametrize("text", ["", "day,", "week", "day,day", "requests"])
def test_a_list_of_other_things_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be some of day, tenant, key, model, outcome"):
        dimensions(text)
