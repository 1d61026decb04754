"""gateway keys: which keys are there, and how are they made, renewed and ended?"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.commands import CONFIG, failures_told, loaded
from gateway.commands.times import duration_s, moment, shown
from gateway.keyring import KeyRecord, Keyring, NewKey, minting
from gateway.settings import Settings
from gateway.stores.redis.registry import RedisRegistry
from gateway.stores.redis.target import Target

Result = TypeVar("Result")
COLUMNS = ("id", "tenant", "state", "expires", "source")


@click.group()
def keys() -> None:
    """The keys that callers present."""


@keys.command()
@CONFIG
@click.option("--tenant", required=True, help="The id of a tenant.")
@click.option("--id", "key_id", help="The key's own name. It is not secret. Left out: one is made.")
@click.option(
    "--expires", "expires_at", type=moment, metavar="TIME", help="As 30d, 12h or 2027-01-31. Left out: never."
)
def create(path: Path, tenant: str, key_id: str | None, expires_at: float | None) -> None:
    """Make a key. The secret is printed once; only its hash is kept: in Redis, or in the lines to add to the
    file."""
    settings = _settings(path)
    if _is_in_memory(settings):
        new = _ask(settings, lambda keyring: _drafted(keyring, tenant, key_id, expires_at))
        _tell_secret(new.secret)
        click.echo(f"Add to {path}, which a running gateway reads again by itself:\n\n{_toml(new.record)}")
        return
    new = _ask(settings, lambda keyring: keyring.create(tenant, key_id, expires_at))
    _tell_secret(new.secret)
    click.echo(
        f"Key {new.record.id} of tenant {tenant} is good now. Expires: {shown(new.record.expires_at)}."
    )


@keys.command("list")
@CONFIG
@click.option("--tenant", help="Only the keys of this tenant.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_(path: Path, tenant: str | None, as_json: bool) -> None:
    """The keys there are, in the file and in Redis, with those that are no longer good."""
    records = _ask(_settings(path), lambda keyring: keyring.keys(tenant))
    now = time.time()
    if as_json:
        click.echo(json.dumps([_as_object(record, now) for record in records], indent=2))
        return
    _print([[of.id, of.tenant, of.state(now), shown(of.expires_at), of.source] for of in records])


@keys.command()
@click.argument("key_id", metavar="[ID]", required=False)
@CONFIG
@click.option("--id", "named", help="The key's id, in place of the argument.")
@click.option(
    "--grace",
    "grace_s",
    type=duration_s,
    metavar="TIME",
    default="1h",
    show_default=True,
    help="How long the old secret stays good, as 45m or 0s.",
)
def rotate(key_id: str | None, path: Path, named: str | None, grace_s: float) -> None:
    """Give a key a new secret, which is printed once. Its id, tenant and expiry stay."""
    wanted = _one_of(key_id, named)
    new = _ask(_settings(path), lambda keyring: keyring.rotate(wanted, grace_s))
    _tell_secret(new.secret)
    until = [shown(of.expires_at) for of in new.record.secrets[1:2]]
    state = f"is good until {until[0]}" if until else "is refused from now on"
    click.echo(f"The new secret of key {new.record.id} is good now. The old one {state}.")


@keys.command()
@click.argument("key_id", metavar="[ID]", required=False)
@CONFIG
@click.option("--id", "named", help="The key's id, in place of the argument.")
def revoke(key_id: str | None, path: Path, named: str | None) -> None:
    """End a key for good. Running gateways hear of it at once, and within 10 s if that fails."""
    wanted = _one_of(key_id, named)
    record = _ask(_settings(path), lambda keyring: keyring.revoke(wanted))
    click.echo(f"Key {record.id} of tenant {record.tenant} is revoked since {shown(record.revoked_at)}.")


@keys.command()
@CONFIG
def admin(path: Path) -> None:
    """Make the admin API's own key. It is printed once; the configuration takes its hash."""
    place = (
        "in place of the key_sha256 there" if _settings(path).admin.key_sha256 else "and restart the gateway"
    )
    secret = minting.new_secret("admin")
    _tell_secret(secret)
    click.echo(f'Write into {path}, {place}:\n\n[admin]\nkey_sha256 = "{minting.sha256(secret)}"')


def _settings(path: Path) -> Settings:
    """Keys may be what a configuration is still to get."""
    return loaded(path, needs_keys=False)


def _is_in_memory(settings: Settings) -> bool:
    return settings.store.url == "memory://"


def _ask(settings: Settings, question: Callable[[Keyring], Awaitable[Result]]) -> Result:
    async def answered() -> Result:
        async with _keyring(settings) as keyring:
            return await question(keyring)

    with failures_told():
        return asyncio.run(answered())


@asynccontextmanager
async def _keyring(settings: Settings) -> AsyncIterator[Keyring]:
    if _is_in_memory(settings):
        yield Keyring(settings.tenants, settings.keys)
        return
    target = Target(settings.store)
    try:
        async with target.client() as client:
            store = RedisRegistry(client, settings.store.prefix)
            yield Keyring(settings.tenants, settings.keys, store)
    finally:
        await target.aclose()


async def _drafted(keyring: Keyring, tenant: str, key_id: str | None, expires_at: float | None) -> NewKey:
    """A key for the file, of a tenant that is there already."""
    await keyring.tenant(tenant)
    return keyring.draft(tenant, key_id, expires_at)


def _one_of(argument: str | None, option: str | None) -> str:
    if (argument and option) or not (wanted := argument or option):
        raise click.UsageError("Name one key, as ID or with --id. gateway keys list shows those there are.")
    return wanted


def _tell_secret(secret: str) -> None:
    click.echo(f"The key, shown this once:\n\n    {secret}\n")


def _print(rows: Sequence[Sequence[str]]) -> None:
    """A table for eyes on a terminal; elsewhere columns for programs, one line each."""
    console = Console()
    if console.is_terminal:
        table = Table(*COLUMNS)
        for row in rows:
            table.add_row(*map(Text, row))  # Text: what is in brackets is no markup
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def _toml(record: KeyRecord) -> str:
    lines = ["[[keys]]", f'id = "{record.id}"', f'tenant = "{record.tenant}"']
    lines.append(f'sha256 = "{record.secrets[0].sha256}"')
    if record.expires_at is not None:
        lines.append(f"expires_at = {shown(record.expires_at)}")
    return "\n".join(lines)


def _as_object(record: KeyRecord, now: float) -> dict[str, str | None]:
    return {
        "id": record.id,
        "tenant": record.tenant,
        "state": record.state(now),
        "created_at": None if record.created_at is None else shown(record.created_at),
        "expires_at": None if record.expires_at is None else shown(record.expires_at),
        "source": record.source,
    }
