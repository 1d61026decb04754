"""The gateway's file, for tenants with limits and one without."""

import hashlib
import json
from collections.abc import Mapping

from benchmarks.chaos.plan import TENANTS
from benchmarks.chaos.script import MODEL

Sections = Mapping[str, Mapping[str, object]]  # settings by their names, by the names of their sections


def configuration(
    sections: Sections, workers: Mapping[str, str], at_once: int, keys: Mapping[str, str]
) -> str:
    """workers: their URLs by their names. at_once: requests of each. keys: by tenant."""
    tables = [f"[{name}]\n{_members(members)}" for name, members in sections.items()]
    tables.append(f"[[models]]\n{_members({'name': MODEL})}")
    for worker, url in workers.items():
        members = {"id": worker, "url": url, "model": MODEL, "max_concurrency": at_once}
        tables.append(f"[[workers]]\n{_members(members)}")
    for tenant, limits in TENANTS.items():
        tables.append(f"[[tenants]]\n{_members({'id': tenant, **limits})}")
        key = {"id": f"{tenant}-1", "tenant": tenant, "sha256": sha256(keys[tenant])}
        tables.append(f"[[keys]]\n{_members(key)}")
    return "\n".join(tables)


def _members(members: Mapping[str, object]) -> str:
    """TOML writes text and numbers as JSON does."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in members.items())


def sha256(key: str) -> str:
    """As the file has it."""
    return hashlib.sha256(key.encode()).hexdigest()
