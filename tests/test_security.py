"""Does each threat in SECURITY.md name what shows that it is met, and is there such a test?"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROOMS = ["accept", "identify", "read", "reserve", "enter", "rank", "open", "relay", "settle"]


def rows(heading: str) -> list[list[str]]:
    """Of the table below it, cell by cell."""
    below = SECURITY.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name for function in functions}


def test_each_room_makes_its_promise_in_the_order_of_the_corridor() -> None:
    assert [room for room, _ in rows("What each room promises")] == ROOMS


def test_each_threat_names_tests_that_there_are() -> None:
    threats = rows("Threats, and what shows that they are met")
    named = [(threat, re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown)) for threat, _, shown in threats]

    assert len(named) > 20
    assert [threat for threat, tests in named if not tests] == []
    missing = [f"{path}::{name}" for _, tests in named for path, name in tests if name not in names_in(path)]
    assert missing == []


def test_what_is_not_protected_from_is_said() -> None:
    assert SECURITY.partition("## What it does not protect from")[2].count("\n- ") > 5
