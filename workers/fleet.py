"""Which workers does a fleet file ask for, and which of its fields are at fault?"""

import difflib
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from workers.models import Shape, is_path
from workers.problems import MISSING, Problem, Refused
from workers.spec import CpuWorker, CudaWorker, Worker

Table = dict[str, Any]

DEVICES: dict[str, type[CudaWorker] | type[CpuWorker]] = {"cuda": CudaWorker, "cpu": CpuWorker}

# Values that could hold a secret, put there by mistake.
_NOT_SHOWN = {"env", "extra_args", "api_key_env"}

_CPU_ONLY = CpuWorker.model_fields.keys() - CudaWorker.model_fields.keys()

# Stand-ins for required fields that are missing or wrong, so that the other fields can still be checked.
_STAND_INS: Table = {"id": "unnamed", "model": "unnamed", "port": 1, "gpus": [0]}


@dataclass(frozen=True, slots=True)
class Entry:
    """One `[[workers]]` table with the defaults merged in.

    Where `faulty` names fields, `worker` has stand-ins for them and must not be started.
    """

    index: int
    table: Table
    worker: Worker
    faulty: frozenset[str]
    problems: tuple[Problem, ...]

    def problem(self, field: str, remedy: str) -> Problem:
        """A problem with one field of this worker, with the value that is in force."""
        value = self.table.get(field, getattr(self.worker, field, None))
        hidden = value is None or field in _NOT_SHOWN
        return Problem(f"workers[{self.index}].{field}", remedy, MISSING if hidden else value)


def load(file: Path) -> list[Entry]:
    """Reads a fleet file. Faults of fields are left in the entries; Refused if it lists no workers."""
    document = _parse(file)
    problems = [
        Problem(name, "unknown; a fleet file has [defaults] and [[workers]]")
        for name in document
        if name not in ("defaults", "workers")
    ]
    defaults = document.get("defaults", {})
    tables = document.get("workers", [])
    if not isinstance(defaults, dict):
        problems.append(Problem("defaults", "write it as a table: [defaults]"))
        defaults = {}
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.append(Problem("workers", "write each worker as a table: [[workers]]"))
    elif not tables:
        problems.append(Problem("workers", "a fleet needs at least one [[workers]] table"))
    if problems:
        raise Refused(problems)
    return [_entry(index, table, defaults, file.parent) for index, table in enumerate(tables)]


def _parse(file: Path) -> Table:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused([Problem(str(file), f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused([Problem(str(file), f"is not valid TOML: {error}")]) from error


def _entry(index: int, own: Table, defaults: Table, folder: Path) -> Entry:
    table = _merged(own, defaults)
    given = _with_absolute_paths(table, folder)
    problems: list[Problem] = []
    faulty: set[str] = set()
    kind = _kind(table)
    if kind is None:
        faulty.add("device")
        problems.append(
            Problem(_where(index, ("device",), own, defaults), 'must be "cuda" or "cpu"', table["device"])
        )
        kind, given = _as_if_cuda(given)
    try:
        worker = kind.model_validate(given)
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems += [_field_problem(index, detail, kind, own, defaults) for detail in details]
        faulty |= {str(detail["loc"][0]) for detail in details}
        sound = {name: value for name, value in given.items() if name not in faulty}
        stand_ins = {name: value for name, value in _STAND_INS.items() if name in kind.model_fields}
        worker = kind.model_validate(stand_ins | sound)
    return Entry(index, table, worker, frozenset(faulty), tuple(problems))


def _kind(table: Table) -> type[CudaWorker] | type[CpuWorker] | None:
    device = table.get("device", "cuda")
    return DEVICES.get(device) if isinstance(device, str) else None


def _as_if_cuda(given: Table) -> tuple[type[CudaWorker], Table]:
    """A worker of no known device is checked in the fields that do not depend on the device."""
    ours = {name: value for name, value in given.items() if name not in _CPU_ONLY and name != "device"}
    return CudaWorker, {"gpus": _STAND_INS["gpus"]} | ours


def _merged(own: Table, defaults: Table) -> Table:
    """The worker's table over the defaults; `env` is merged name by name, everything else replaced whole."""
    table = defaults | own
    environments = defaults.get("env"), own.get("env")
    if all(isinstance(env, dict) for env in environments):
        table["env"] = defaults["env"] | own["env"]
    return table


def _with_absolute_paths(table: Table, folder: Path) -> Table:
    """Paths count from the fleet file, so that it means the same wherever it is started from."""
    paths = {
        name: str((folder / os.path.expanduser(value)).absolute())
        for name in ("model", "python", "vllm")
        if isinstance(value := table.get(name), str) and is_path(value)
    }
    return table | paths


def _field_problem(
    index: int, detail: ErrorDetails, kind: type[BaseModel], own: Table, defaults: Table
) -> Problem:
    location = detail["loc"]
    where = _where(index, location, own, defaults)
    fields = Shape.model_fields if location[0] == "shape" and len(location) > 1 else kind.model_fields
    name = str(location[-1])
    if detail["type"] == "extra_forbidden":
        # Without its value, which could be a secret under a name of the writer's invention.
        return Problem(where, _unknown(name, fields))
    field = fields.get(name) or fields[str(location[0])]
    if detail["type"] == "missing":
        return Problem(where, f"missing; give {field.description}")
    fault = detail["msg"].removeprefix("Value error, ").replace("Input should", "should", 1)
    value = MISSING if location[0] in _NOT_SHOWN else detail["input"]
    return Problem(where, f"{fault}; allowed: {field.description}", value)


def _where(index: int, location: tuple[int | str, ...], own: Table, defaults: Table) -> str:
    # A fault that stands in [defaults] is reported there, and not for every worker that inherits it.
    path = "defaults" if location[0] in defaults and location[0] not in own else f"workers[{index}]"
    return path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _unknown(name: str, fields: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, fields, n=1)
    if close:
        return f"unknown field; did you mean {close[0]}?"
    return f"unknown field for this device; known: {', '.join(sorted(fields))}"
