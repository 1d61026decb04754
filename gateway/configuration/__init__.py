"""A TOML file and the environment → Settings, or every problem at once."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo

from gateway.configuration.contradictions import Fields, Table, contradictions
from gateway.configuration.problems import (
    ConfigurationError,
    quoted,
    refused,
    shown,
    unknown,
    without_credentials,
)
from gateway.settings import Section, Settings

__all__ = ["ConfigurationError", "effective", "load", "parse"]

ENV_PREFIX = "GATEWAY_"

# The classes of the sections, read off Settings so that a section is written down once.
SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type)
}
TABLES: dict[str, type[Section]] = {
    name: get_args(field.annotation)[0]
    for name, field in Settings.model_fields.items()
    if name not in SECTIONS
}


def load(path: Path, environ: Mapping[str, str] = os.environ, *, needs_keys: bool = True) -> Settings:
    """Read and check a configuration. This is the only reader of settings from disk or environment.

    needs_keys: whether a configuration in which nobody could call is a problem. Raises ConfigurationError.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            [f"{path}: cannot be read: {error.strerror}. Name a file with --config"]
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError([f"{path}: not UTF-8 text. Save it as UTF-8"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{path}: not valid TOML: {error}. Mend that line"]) from None
    return parse(raw, environ, needs_keys=needs_keys)


def parse(raw: dict[str, Any], environ: Mapping[str, str], *, needs_keys: bool = True) -> Settings:
    """Check the content of a configuration file. Raises ConfigurationError with all problems."""
    problems: list[str] = []
    raw = _with_environment(raw, environ, problems)
    problems += [
        f"{quoted(name)}: {unknown(name, Settings.model_fields)}"
        for name in raw
        if name not in Settings.model_fields
    ]
    sections = {name: _section(name, kind, raw.get(name, {}), problems) for name, kind in SECTIONS.items()}
    tables = {name: _table(name, kind, raw.get(name, []), problems) for name, kind in TABLES.items()}
    problems += contradictions(sections, tables, environ, needs_keys)
    if problems:
        raise ConfigurationError([problem + _source(problem, environ) for problem in problems])
    items = {name: tuple(fields for _, fields in table) for name, table in tables.items()}
    return Settings.model_validate({**sections, **items})


def effective(settings: Settings) -> Iterator[str]:
    """Every setting as a line `section.name = value`; secrets are not shown."""
    for name, value in settings:
        if isinstance(value, Section):
            yield from _lines(name, value)
        else:
            for index, item in enumerate(value):
                yield from _lines(f"{name}[{index}]", item)


def _lines(path: str, section: Section) -> Iterator[str]:
    for name, value in section:
        if isinstance(value, SecretStr):
            text = '"(hidden)"' if value else '""'
        else:
            plain = json.dumps(value, default=str, ensure_ascii=False)
            text = "(none)" if value is None else without_credentials(plain)
        yield f"{path}.{name} = {text}"


def _with_environment(raw: dict[str, Any], environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """The file's content with GATEWAY_SECTION_FIELD variables laid over it."""
    merged = dict(raw)
    for variable in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
        section, _, field = variable.removeprefix(ENV_PREFIX).lower().partition("_")
        fields = SECTIONS[section].model_fields if section in SECTIONS else {}
        if field in fields:
            present = merged.get(section, {})
            if isinstance(present, dict):  # otherwise it is reported as a section that is no table
                merged[section] = present | {field: _from_text(fields[field], environ[variable])}
        elif fields:
            problems.append(f"{variable}: {unknown(field, fields, prefix=_variable(section, ''))}")
        else:
            problems.append(f"{variable}: {unknown(section, SECTIONS, 'section', ENV_PREFIX)}")
    return merged


def _from_text(field: FieldInfo, text: str) -> object:
    """Text as it is where the field takes text, else read as a TOML value: 8080, true, [1024, 8192]."""
    if field.annotation in (str, SecretStr) or get_origin(field.annotation) is Literal:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _variable(section: str, field: str) -> str:
    return f"{ENV_PREFIX}{section}_{field}".upper()


def _source(problem: str, environ: Mapping[str, str]) -> str:
    """Where the value comes from, if not from the file."""
    place = re.match(r"(\w+)\.(\w+)", problem)
    variable = _variable(*place.groups()) if place else ""
    return f" (set by {variable})" if variable in environ else ""


def _section(path: str, kind: type[Section], content: object, problems: list[str]) -> Fields:
    """The fields that are in order; the others are reported, and left out."""
    if not isinstance(content, dict):
        table, is_item, _ = path.partition("[")
        heading = f"[[{table}]]" if is_item else f"[{table}]"
        problems.append(
            f"{path} = {shown(content, table)}: is no table; write {heading} and its fields below"
        )
        return {}
    known = {name: value for name, value in content.items() if name in kind.model_fields}
    problems += [
        f"{path}.{quoted(name)}: {unknown(name, kind.model_fields)}" for name in content if name not in known
    ]
    try:
        return dict(kind.model_validate(known, strict=True))
    except ValidationError as error:
        problems += [refused(path, kind, details) for details in error.errors()]
        faulty = {details["loc"][0] for details in error.errors()}
        optional = {name: of.get_default() for name, of in kind.model_fields.items() if not of.is_required()}
        return {name: value for name, value in (optional | known).items() if name not in faulty}


def _table(path: str, kind: type[Section], content: object, problems: list[str]) -> Table:
    if not isinstance(content, list):
        problems.append(
            f"{path} = {shown(content, path)}: is no list of tables; "
            f"write [[{path}]], in double brackets, before each"
        )
        if not isinstance(content, dict):
            return [(path, {})]  # some there are, of which nothing is known
        content = [content]
    places = [(f"{path}[{index}]", item) for index, item in enumerate(content)]
    return [(place, _section(place, kind, item, problems)) for place, item in places]
