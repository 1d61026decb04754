"""How does a problem read? One line: the field's path, its value if that is no secret, and the remedy."""

import difflib
import json
import re
from collections.abc import Iterable, Sequence

from pydantic_core import ErrorDetails

from gateway.settings import Section

# Fields and tables where a refused value is not shown: what people put there by mistake is the key itself.
SECRETS = {"cache_salt_secret", "sha256", "key_sha256", "api_key_env", "auth", "admin", "keys"}
LONGEST_VALUE = 100  # characters
# What is allowed, by pydantic's name of the error. In braces: the bound.
ALLOWED = {
    "bool_type": "must be true or false",
    "datetime_type": "must be a date and time, as 2027-01-31T00:00:00Z",
    "float_type": "must be a number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le:g}",
    "list_type": "must be a list, in [ ]",
    "literal_error": "must be {expected}",
    "string_type": "must be text, in quotes",
    "value_error": "{error}",
}


class ConfigurationError(Exception):
    """Why a configuration cannot be used: one line a problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def refused(path: str, kind: type[Section], details: ErrorDetails) -> str:
    """What pydantic has against a field of the section at `path`."""
    field, *inner = details["loc"]
    where = f"{path}.{field}" + "".join(f"[{index}]" for index in inner)
    description = " ".join((kind.model_fields[str(field)].description or "").split())
    if details["type"] == "missing":
        return f"{where}: missing; add it. {description}"
    allowed = ALLOWED[details["type"]].format_map(details.get("ctx", {}))
    return f"{where} = {shown(details['input'], str(field))}: {allowed}. {description}"


def shown(value: object, name: str = "") -> str:
    """A value nearly as in TOML, on one line; (hidden) for passwords in URLs, or if `name` is a secret."""
    if name in SECRETS:
        return "(hidden)"
    text = without_credentials(json.dumps(value, default=str, ensure_ascii=False))
    text = re.sub(r'(://[^"?]*\?)[^"]*', r"\1(hidden)", text)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def without_credentials(text: str) -> str:
    """Text without the user and password of the addresses in it."""
    return re.sub(r'(?<=://)[^"]*@', "(hidden)@", text)


def quoted(name: str) -> str:
    """A name as TOML wants it written."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def unknown(name: str, known: Iterable[str], what: str = "setting", prefix: str = "") -> str:
    """That a name is none of those known, and which was meant. With `prefix`: names of variables."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    if prefix:
        names, close = [[prefix + of.upper() for of in some] for some in (names, close)]
    if close:
        return f"unknown {what}; did you mean {close[0]}?"
    return f"unknown {what}; known: {', '.join(names) or 'none'}"
