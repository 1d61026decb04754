"""Does README.md list every setting as it is? `python -m tests.test_readme` writes the list anew."""

import json
import types
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, SecretStr
from pydantic.fields import FieldInfo

from gateway.configuration import SECTIONS, TABLES
from gateway.settings import Section

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
KINDS = {
    int: "whole number",
    float: "number",
    bool: "true, false",
    str: "text",
    SecretStr: "text",
    datetime: "date and time",
}


def test_the_readme_lists_every_setting_as_it_is() -> None:
    text = README.read_text(encoding="utf-8")

    assert text.count(BEGIN) == text.count(END) == 1, "README.md lacks the two comments around the list"
    assert text.partition(BEGIN)[2].partition(END)[0] == listed(), "run python -m tests.test_readme"


def test_what_a_setting_allows_is_said_in_full() -> None:
    rows = listed().splitlines()

    assert any(row.startswith("| `port` | whole number ≥ 0, ≤ 65535 | `8080` |") for row in rows)
    assert any(row.startswith('| `policy` | `"length_bucket"`, `"least_work"`, ') for row in rows)
    assert any(row.startswith("| `aliases` | list of text | `[]` |") for row in rows)
    assert any(row.startswith("| `max_model_len` | whole number ≥ 1 | none |") for row in rows)
    assert any(row.startswith("| `url` | text | required |") for row in rows)


def listed() -> str:
    """Every setting in Markdown: a heading and a table for each section."""
    headings = {f"[{name}]": kind for name, kind in SECTIONS.items()}
    headings |= {f"[[{name}]]": kind for name, kind in TABLES.items()}
    return "\n" + "".join(f"### `{heading}`\n\n{_table(kind)}\n" for heading, kind in headings.items())


def _table(kind: type[Section]) -> str:
    rows = ["| Setting | Allowed | Default | |", "|---|---|---|---|", *_rows(kind)]
    return "\n".join(rows) + "\n"


def _rows(kind: type[Section]) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        description = " ".join((field.description or "").split()).replace("|", "\\|")
        allowed = _allowed(field.annotation, field.metadata)
        yield f"| `{name}` | {allowed} | {_default(field)} | {description} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None:
        return "none"
    return f"`{json.dumps(field.default, default=SecretStr.get_secret_value)}`"


def _allowed(kind: Any, bounds: list[Any]) -> str:
    """The kind of value and its bounds. Kinds that are not foreseen here fail."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _allowed(inner[0], [b for given in inner[1:] for b in getattr(given, "metadata", [given])])
    if origin in (Union, types.UnionType):
        (only,) = (one for one in inner if one is not type(None))
        return _allowed(only, bounds)
    if origin is list:
        return f"list of {_allowed(inner[0], [])}"
    if origin is Literal:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in inner)
    said = [_bound(bound) for bound in bounds if not isinstance(bound, AfterValidator)]
    return f"{KINDS[kind]} {', '.join(said)}".rstrip()


def _bound(bound: Any) -> str:
    match bound:
        case Ge(ge=least):
            return f"≥ {least}"
        case Gt(gt=below):
            return f"> {below}"
        case Le(le=most):
            return f"≤ {most}"
    raise TypeError(f"how is {bound!r} said in words?")


def _write() -> None:
    before, begin, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    README.write_text(before + begin + listed() + end + after, encoding="utf-8")


if __name__ == "__main__":
    _write()
