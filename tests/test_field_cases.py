"""Is there a test for each fault that users reported, and does one command run them all?"""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests import field_cases
from tests.field_cases import CASES, STILL_TO_COME, marked

KNOWN = {case.id for case in CASES}
REPORTS = re.compile(r"[\w.-]+/[\w.-]+(#\d+)(, #\d+)*(; [\w.-]+/[\w.-]+(#\d+)(, #\d+)*)*")


def shown() -> set[object]:
    return {case for test in marked() for case in test.cases}


def test_each_case_has_its_name_once_and_tells_who_reported_it() -> None:
    assert [name for name, times in Counter(case.id for case in CASES).items() if times > 1] == []
    assert [case.id for case in CASES if not REPORTS.fullmatch(case.reports)] == []
    assert len(CASES) == 39


def test_each_case_is_shown_by_a_test() -> None:
    assert KNOWN - shown() - STILL_TO_COME == set()


def test_no_test_claims_to_show_a_case_that_there_is_not() -> None:
    assert [test.node for test in marked() if not test.cases or not KNOWN.issuperset(test.cases)] == []


def test_what_is_shown_is_no_longer_still_to_come() -> None:
    assert STILL_TO_COME & shown() == set(), "take it out of STILL_TO_COME"
    assert STILL_TO_COME <= KNOWN


SOME_TESTS = """import pytest
from pathlib import Path

@pytest.mark.case("S1", "S2")
@pytest.mark.case("L1")
@pytest.mark.parametrize("letter", ["a", "b"])
def test_one(letter):
    with Path("runs").open("a") as runs:
        runs.write(letter)

@pytest.mark.case("L2")
def test_two():
    assert not Path("runs").write_text("c")

def test_three():
    Path("runs").write_text("d")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With tests that note when they run."""
    module = tmp_path / "tests" / "rooms" / "test_some.py"
    module.parent.mkdir(parents=True)
    module.write_text(SOME_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = case\n")
    return tmp_path / "tests"


def test_a_test_may_show_several_cases(folder: Path) -> None:
    one, two = marked(folder)
    assert (one.node, one.cases) == ("tests/rooms/test_some.py::test_one", ("S1", "S2", "L1"))
    assert (two.node, two.cases) == ("tests/rooms/test_some.py::test_two", ("L2",))


def test_all_tests_of_a_case_are_run_as_often_as_asked(folder: Path) -> None:
    assert field_cases.main(["--case", "S2", "--times", "2", "-q"], folder) == 0
    assert (folder.parent / "runs").read_text() == "abab"


def test_a_failure_ends_the_row(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert field_cases.main(["--times", "3"], folder) == pytest.ExitCode.TESTS_FAILED
    assert (folder.parent / "runs").read_text() == "c"
    said = capfd.readouterr().out
    assert "--- 1 of 3" in said
    assert "--- 2 of 3" not in said


def test_what_is_not_known_here_goes_to_pytest(folder: Path) -> None:
    assert field_cases.main(["-k", "b and not two"], folder) == 0
    assert (folder.parent / "runs").read_text() == "b"


def test_the_list_tells_who_suffered_what_and_which_tests_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert field_cases.main(["--list"]) == 0
    said = capsys.readouterr().out
    for case in CASES:
        assert f"{case.id}  {case.suffered}" in said
    for test in marked():
        assert test.node in said


def test_a_case_without_a_test_is_named_and_does_not_run_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        field_cases.main(["--case", "Z1"], tmp_path)
    assert "no test shows Z1 yet" in capsys.readouterr().err
