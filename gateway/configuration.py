"""A TOML file and the environment → Settings, or every problem at once."""

import difflib
import hashlib
import ipaddress
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.settings import Section, Settings

ENV_PREFIX = "GATEWAY_"
EMPTY_KEY = hashlib.sha256(b"").hexdigest()

# The classes of the sections, read off Settings so that a section is written down once.
SECTIONS: dict[str, type[Section]] = {}
TABLES: dict[str, type[Section]] = {}
for _name, _field in Settings.model_fields.items():
    _annotation: Any = _field.annotation
    if isinstance(_annotation, type):
        SECTIONS[_name] = _annotation
    else:
        TABLES[_name] = get_args(_annotation)[0]


class ConfigurationError(Exception):
    """Why a configuration cannot be used: one line a problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


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
    values: dict[str, Any] = {}
    for name, content in raw.items():
        if name in SECTIONS:
            values[name] = _section(name, SECTIONS[name], content, problems)
        elif name in TABLES:
            values[name] = tuple(_tables(name, TABLES[name], content, problems))
        else:
            problems.append(f"{name}: {_unknown(name, Settings.model_fields)}")
    settings = Settings.model_construct(
        **{name: value for name, value in values.items() if value is not None}
    )
    problems += _contradictions(settings, environ, raw, needs_keys)
    if problems:
        raise ConfigurationError(problems)
    return settings


def effective(settings: Settings) -> Iterator[str]:
    """Every setting as a line `section.name = value`; secrets are not shown."""
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, Section):
            yield from _lines(name, value)
        else:
            for index, item in enumerate(value):
                yield from _lines(f"{name}[{index}]", item)


def _lines(path: str, section: Section) -> Iterator[str]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        yield f"{path}.{name} = {_shown(name, value)}"


def _shown(name: str, value: object) -> str:
    if isinstance(value, SecretStr) or "secret" in name:
        return '"(hidden)"' if value and str(value) else '""'
    if value is None:
        return "(none)"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "..."


def _with_environment(raw: dict[str, Any], environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """The file's content with GATEWAY_SECTION_FIELD variables laid over it."""
    merged = dict(raw)
    for variable in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
        section, _, field = variable.removeprefix(ENV_PREFIX).lower().partition("_")
        fields = SECTIONS[section].model_fields if section in SECTIONS else {}
        if field not in fields:
            known = [f"{ENV_PREFIX}{s}_{f}".upper() for s, of in SECTIONS.items() for f in of.model_fields]
            problems.append(f"{variable}: {_unknown(variable, known, 'environment variable')}")
            continue
        present = merged.get(section, {})
        if isinstance(present, dict):  # otherwise it is reported as a section that is no table
            merged[section] = present | {field: _from_text(fields[field], environ[variable])}
    return merged


def _from_text(field: FieldInfo, text: str) -> object:
    """Text as it is where the field takes text, else read as a TOML value: 8080, true, [1024, 8192]."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[(field.annotation, *field.metadata)])  # type: ignore[arg-type]
        adapter.validate_python(text, strict=True)
    except ValidationError:
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            pass
    return text


def _section(path: str, kind: type[Section], content: object, problems: list[str]) -> Section | None:
    if not isinstance(content, dict):
        problems.append(
            f"{path} = {_shown(path, content)}: must be a table; write [{path}] and its fields below"
        )
        return None
    try:
        return kind.model_validate(content, strict=True)
    except ValidationError as error:
        problems += [_problem(path, kind, details) for details in error.errors()]
        return None


def _tables(path: str, kind: type[Section], content: object, problems: list[str]) -> Iterator[Section]:
    if not isinstance(content, list):
        problems.append(
            f"{path} = {_shown(path, content)}: must be a list of tables; write [[{path}]] for each"
        )
        return
    for index, item in enumerate(content):
        section = _section(f"{path}[{index}]", kind, item, problems)
        if section is not None:
            yield section


def _problem(path: str, kind: type[Section], details: ErrorDetails) -> str:
    field, *inner = details["loc"] or ("",)
    where = f"{path}.{field}" + "".join(f"[{part}]" for part in inner if isinstance(part, int))
    if details["type"] == "extra_forbidden":
        return f"{where}: {_unknown(str(field), kind.model_fields)}"
    description = kind.model_fields[str(field)].description or ""
    if details["type"] == "missing":
        return f"{where}: missing. {description}"
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input should ")
    return f"{where} = {_shown(str(field), details['input'])}: {message}. {description}"


def _unknown(name: str, known: Iterable[str], what: str = "setting") -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(names))}"
    return f"unknown {what}; {hint}"


# What no single field can tell.


def _contradictions(
    settings: Settings, environ: Mapping[str, str], raw: Mapping[str, Any], needs_keys: bool
) -> Iterator[str]:
    yield from _ports(settings)
    yield from _openness(settings, raw, needs_keys)
    yield from _doubles(settings)
    yield from _references(settings, raw)
    yield from _keys(settings)
    yield from _model_lengths(settings)
    for index, worker in enumerate(settings.workers):
        if worker.api_key_env and not environ.get(worker.api_key_env):
            yield (
                f'workers[{index}].api_key_env = "{worker.api_key_env}": no such environment variable; '
                "export the worker's key in it, or leave api_key_env out"
            )
    ca_file = settings.upstream.ca_file
    if ca_file and not os.access(ca_file, os.R_OK):
        yield f'upstream.ca_file = "{ca_file}": cannot be read; name a PEM file that exists'


def _ports(settings: Settings) -> Iterator[str]:
    server = settings.server
    if server.port and server.port == server.admin_port:
        yield f"server.admin_port = {server.port}: is the public port too; choose another"
    if server.processes > 1 and settings.store.url == "memory://":
        yield (
            f"server.processes = {server.processes}: limits in memory would hold for each process alone; "
            "set it to 1, or store.url to a Redis"
        )


def _openness(settings: Settings, raw: Mapping[str, Any], needs_keys: bool) -> Iterator[str]:
    if settings.auth.required:
        if needs_keys and not (raw.get("tenants") and raw.get("keys")):
            yield (
                "keys: nobody could call. Add [[tenants]] and [[keys]] (gateway keys create makes a key), "
                "or set auth.required = false to serve everyone on loopback"
            )
    elif not _is_loopback(settings.server.host):
        yield (
            f'auth.required = false: on server.host = "{settings.server.host}" everyone on the network could '
            'call; set server.host = "127.0.0.1", or require keys'
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _doubles(settings: Settings) -> Iterator[str]:
    names = [(f"models[{i}].name", model.name) for i, model in enumerate(settings.models)]
    names += [
        (f"models[{i}].aliases[{j}]", alias)
        for i, model in enumerate(settings.models)
        for j, alias in enumerate(model.aliases)
    ]
    yield from _repeated(names)
    yield from _repeated([(f"workers[{i}].id", worker.id) for i, worker in enumerate(settings.workers)])
    yield from _repeated([(f"workers[{i}].url", worker.url) for i, worker in enumerate(settings.workers)])
    yield from _repeated([(f"tenants[{i}].id", tenant.id) for i, tenant in enumerate(settings.tenants)])
    yield from _repeated([(f"keys[{i}].id", key.id) for i, key in enumerate(settings.keys)])
    yield from _repeated([(f"keys[{i}].sha256", key.sha256) for i, key in enumerate(settings.keys)])


def _repeated(places: Iterable[tuple[str, str]]) -> Iterator[str]:
    first: dict[str, str] = {}
    for path, value in places:
        if value in first:
            yield f'{path} = "{value}": is {first[value]} already; each must differ'
        first.setdefault(value, path)


def _references(settings: Settings, raw: Mapping[str, Any]) -> Iterator[str]:
    models = {model.name for model in settings.models}
    names = models | {alias for model in settings.models for alias in model.aliases}
    for index, worker in enumerate(settings.workers):
        if worker.model not in models:
            yield f'workers[{index}].model = "{worker.model}": {_unknown(worker.model, models, "model")}'
    for index, tenant in enumerate(settings.tenants):
        for place, name in enumerate(tenant.models):
            if name != "*" and name not in names:
                yield f'tenants[{index}].models[{place}] = "{name}": {_unknown(name, {*names, "*"}, "model")}'
    served = {worker.model for worker in settings.workers}
    for index, model in enumerate(settings.models):
        if model.name not in served and len(settings.workers) == len(raw.get("workers", ())):
            yield f'models[{index}].name = "{model.name}": no worker serves it; add one in [[workers]]'
    if not raw.get("models"):
        yield "models: there is none; add [[models]] with a name, and [[workers]] that serve it"


def _keys(settings: Settings) -> Iterator[str]:
    tenants = {tenant.id for tenant in settings.tenants}
    for index, key in enumerate(settings.keys):
        if key.tenant not in tenants:
            yield f'keys[{index}].tenant = "{key.tenant}": {_unknown(key.tenant, tenants, "tenant")}'
        if key.sha256 == EMPTY_KEY:
            yield f"keys[{index}].sha256: is the hash of an empty key; make one with gateway keys create"


def _model_lengths(settings: Settings) -> Iterator[str]:
    for index, model in enumerate(settings.models):
        default = model.default_max_tokens or 0
        for bound in ("max_output_tokens", "max_model_len"):
            limit = getattr(model, bound)
            if limit is not None and default > limit:
                yield (
                    f"models[{index}].default_max_tokens = {default}: is above {bound} = {limit}; "
                    f"lower it, or raise {bound}"
                )
