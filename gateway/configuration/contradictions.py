"""What is wrong that no single field can tell?

A field that is itself at fault is not among those looked at here, so that no problem causes a second one.
"""

import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.configuration.problems import shown, unknown

Fields = Mapping[str, Any]
Table = list[tuple[str, Fields]]  # each item with its path, as "workers[0]"

EMPTY_KEY = hashlib.sha256(b"").hexdigest()
DIFFERENT = [("workers", "id"), ("workers", "url"), ("tenants", "id"), ("keys", "id"), ("keys", "sha256")]


def contradictions(
    sections: Mapping[str, Fields], tables: Mapping[str, Table], environ: Mapping[str, str], needs_keys: bool
) -> Iterator[str]:
    """A line for each. `needs_keys`: whether it is a problem that nobody could call."""
    in_memory = sections["store"].get("url") == "memory://"
    yield from _server(sections["server"], in_memory)
    yield from _openness(sections, tables, needs_keys and in_memory)
    yield from _ca_file("upstream", sections["upstream"])
    yield from _ca_file("store", sections["store"])
    yield from _doubles(tables)
    yield from _models(tables["models"], tables["workers"])
    yield from _references(tables)
    yield from _keys(tables["keys"])
    yield from _admin_key(sections["admin"], tables["keys"])
    yield from _worker_keys(tables["workers"], environ)


def _server(server: Fields, in_memory: bool) -> Iterator[str]:
    port = server.get("port")
    if port and port == server.get("admin_port"):
        yield f"server.admin_port = {port}: is the public port too; choose another"
    processes = server.get("processes", 1)
    if processes > 1 and in_memory:
        yield (
            f"server.processes = {processes}: limits in memory would hold for each process alone; "
            'set store.url = "redis://..." for them to share, or processes = 1'
        )


def _openness(sections: Mapping[str, Fields], tables: Mapping[str, Table], needs_keys: bool) -> Iterator[str]:
    required, host = sections["auth"].get("required"), sections["server"].get("host")
    if required and needs_keys and not (tables["tenants"] and tables["keys"]):
        yield (
            "keys: nobody could call. Add [[tenants]] and [[keys]] (gateway keys create makes a key), "
            "or set auth.required = false to serve everyone on loopback"
        )
    if required is False and host is not None and not _is_loopback(host):
        yield (
            f"auth.required = false: on server.host = {shown(host)} everyone on the network could call; "
            'set server.host = "127.0.0.1", or require keys'
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _ca_file(section: str, fields: Fields) -> Iterator[str]:
    path = fields.get("ca_file")
    if not path:
        return
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        reason = "holds no certificates" if isinstance(error, ssl.SSLError) else error.strerror
        yield f"{section}.ca_file = {shown(path)}: {reason}; name a PEM file of certificates"


def _doubles(tables: Mapping[str, Table]) -> Iterator[str]:
    names = [(f"{path}.name", model["name"]) for path, model in tables["models"] if "name" in model]
    for path, model in tables["models"]:
        names += [(f"{path}.aliases[{i}]", alias) for i, alias in enumerate(model.get("aliases", ()))]
    yield from _repeated(names)
    for table, field in DIFFERENT:
        yield from _repeated(
            (f"{path}.{field}", item[field]) for path, item in tables[table] if field in item
        )


def _repeated(places: Iterable[tuple[str, str]]) -> Iterator[str]:
    first: dict[str, str] = {}
    for path, value in places:
        if value in first:
            yield f"{path} = {shown(value)}: is {first[value]} already; each must differ"
        first.setdefault(value, path)


def _models(models: Table, workers: Table) -> Iterator[str]:
    if not models:
        yield "models: there is none; add [[models]] with a name, and [[workers]] that serve it"
    served = {worker.get("model") for _, worker in workers}
    for path, model in models:
        name = model.get("name")
        if name and not {name, None} & served:  # None: a worker of which it is not known what it serves
            yield f"{path}.name = {shown(name)}: no worker serves it; add one in [[workers]]"
        default = model.get("default_max_tokens") or 0
        for bound in ("max_output_tokens", "max_model_len"):
            limit = model.get(bound)
            if limit and default > limit:
                yield (
                    f"{path}.default_max_tokens = {default}: is above {bound} = {limit}; "
                    f"lower it, or raise {bound}"
                )


def _references(tables: Mapping[str, Table]) -> Iterator[str]:
    models, tenants = tables["models"], tables["tenants"]
    if all("name" in model for _, model in models):
        names = {model["name"] for _, model in models}
        places = [(f"{path}.model", worker.get("model")) for path, worker in tables["workers"]]
        yield from _dangling(places, names, "model")
        if all("aliases" in model for _, model in models):
            names |= {alias for _, model in models for alias in model["aliases"]} | {"*"}
            places = [
                (f"{path}.models[{i}]", name)
                for path, tenant in tenants
                for i, name in enumerate(tenant.get("models", ()))
            ]
            yield from _dangling(places, names, "model")
    if all("id" in tenant for _, tenant in tenants):
        places = [(f"{path}.tenant", key.get("tenant")) for path, key in tables["keys"]]
        yield from _dangling(places, {tenant["id"] for _, tenant in tenants}, "tenant")


def _dangling(places: Iterable[tuple[str, str | None]], known: set[str], what: str) -> Iterator[str]:
    for path, name in places:
        if name is not None and name not in known:
            yield f"{path} = {shown(name)}: {unknown(name, known, what)}"


def _keys(keys: Table) -> Iterator[str]:
    for path, key in keys:
        if key.get("sha256") == EMPTY_KEY:
            yield (
                f'{path}.sha256 = "{EMPTY_KEY}": is the hash of an empty key; '
                "make one with gateway keys create"
            )


def _admin_key(admin: Fields, keys: Table) -> Iterator[str]:
    sha256 = admin.get("key_sha256")
    if sha256 and sha256 in (EMPTY_KEY, *(key.get("sha256") for _, key in keys)):
        whose = "an empty key" if sha256 == EMPTY_KEY else "one of [[keys]], which would open both ports"
        yield f"admin.key_sha256 = (hidden): is the hash of {whose}; make one with gateway keys admin"


def _worker_keys(workers: Table, environ: Mapping[str, str]) -> Iterator[str]:
    for path, worker in workers:
        variable = worker.get("api_key_env")
        if variable and not re.fullmatch(r"[!-~]+", environ.get(variable, "")):
            state = "holds what no header can" if environ.get(variable) else "no such environment variable"
            yield (
                f"{path}.api_key_env = {shown(variable)}: {state}; export the worker's key in it, "
                "or leave api_key_env out"
            )
