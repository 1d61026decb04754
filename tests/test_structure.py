"""Does the repository keep the shape it was given?

A test module for each module: `gateway/x.py` has `tests/gateway/test_x.py`; `gateway/room/x.py` has
`tests/gateway/room/test_x.py` or, in a flat folder, `tests/gateway/test_room_x.py`; `__main__` is `main`.
A package's `__init__` is tested through what it exports, under any name.
"""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP = {
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "deploy",
    "docker-compose.yml",
    "gateway",
    "pyproject.toml",
    "tests",
    "workers",
}
BUDGETED = {"gateway", "workers"}
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
BANNED = {"utils", "util", "helpers", "helper", "common", "manager", "handler", "handlers", "service", "misc"}
NOT_COMPILED = {"Struct", "msgspec.Struct", "runtime_checkable"}
# Of one person's machine; and package indexes, which each machine configures for itself.
NOT_ELSEWHERE = re.compile(r"(?<![\w.~}-])/(?:root|work|Users)/|file:///|https?://[^\s\"']+/simple\b")


def tracked() -> list[Path]:
    """The repository's files, new ones too, relative to its root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file())


def modules() -> list[Path]:
    """The modules that are held to the budgets."""
    found = [path for path in tracked() if path.parts[0] in BUDGETED and path.suffix == ".py"]
    assert len(found) > 40  # or all that is said of them is said of nothing
    return found


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of a module, with how many lines each is long."""
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or 0) - node.lineno + 1


def test_the_top_level_holds_nothing_new() -> None:
    assert {path.parts[0] for path in tracked() if not path.parts[0].startswith(".")} <= TOP


def test_a_file_fits_into_a_head() -> None:
    lengths = {str(path): text_of(path).count("\n") for path in modules()}

    assert {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_a_function_fits_onto_a_screen() -> None:
    lengths = {f"{path}: {name}": lines for path in modules() for name, lines in functions(path)}

    assert len(lengths) > 200
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_a_name_says_what_is_inside() -> None:
    names = {path: {part.removesuffix(".py") for part in path.parts} for path in tracked()}

    assert [str(path) for path, parts in names.items() if path.suffix == ".py" and parts & BANNED] == []


def test_a_module_says_on_top_which_question_it_answers() -> None:
    assert [str(path) for path in modules() if not ast.get_docstring(ast.parse(text_of(path)))] == []


def test_every_module_has_a_test_module() -> None:
    present = set(tracked())
    of_modules = {path: set(places_of_test(path)) for path in modules() if path.name != "__init__.py"}

    assert [str(path) for path, tests in of_modules.items() if not tests & present] == []


def places_of_test(path: Path) -> Iterator[Path]:
    """Where the test module of a module may stand."""
    *folders, name = path.with_suffix("").parts
    name = name.strip("_")
    yield Path("tests", *folders, f"test_{name}.py")
    if len(folders) > 1:
        yield Path("tests", folders[0], f"test_{'_'.join([*folders[1:], name])}.py")


def test_what_is_compiled_is_the_same_compiled() -> None:
    """Classes that mypyc would change, silently: it drops keywords of a class (`frozen=True`), and what is
    looked up by name in a class as it is (msgspec's, runtime_checkable)."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    patterns, but = hook["hooks"]["mypyc"]["include"], hook["hooks"]["mypyc"]["exclude"]
    found = {pattern: set(ROOT.glob(pattern.lstrip("/"))) for pattern in (*patterns, *but)}
    assert [pattern for pattern, files in found.items() if not files] == []
    compiled = set[Path]().union(*(found[pattern] for pattern in patterns))
    compiled -= set[Path]().union(*(found[pattern] for pattern in but))
    assert {
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in compiled
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
        and (
            node.keywords
            or any(ast.unparse(each) in NOT_COMPILED for each in (*node.bases, *node.decorator_list))
        )
    } == set()


def test_no_file_names_what_only_one_machine_has() -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if NOT_ELSEWHERE.search(line) and path != Path("tests/test_structure.py")
    ]

    assert found == []
