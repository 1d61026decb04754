"""Does hostile input get what it deserves, on either lane, and does TABLE.md say so?"""

import pytest

from tests.hostile.stage import stage
from tests.hostile.table import GROUPS, HEAD, TABLE, section

pytestmark = pytest.mark.usefixtures("either_lane")


@pytest.mark.parametrize("name", GROUPS)
async def test_each_case_is_answered_as_it_must_be_and_as_the_table_says(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    group, wrong = GROUPS[name], list[str]()
    async with stage(**group.settings) as on:
        text = await section(group, on, wrong)
    assert wrong == []
    assert text in TABLE.read_text(encoding="utf-8"), "run python -m tests.hostile"
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_the_table_holds_nothing_else() -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert titles == [group.title for group in GROUPS.values()]
    rows = sum(line.startswith("| ") for line in text.splitlines()) - len(GROUPS)  # without their heads
    assert rows == sum(len(group.cases) for group in GROUPS.values())


@pytest.mark.parametrize("name", GROUPS)
def test_no_two_cases_of_a_group_have_one_name(name: str) -> None:
    names = [case.name for case in GROUPS[name].cases]
    assert len(set(names)) == len(names)
