"""The command line."""

import hashlib
import logging
import secrets
import sys
from pathlib import Path

import click
import uvloop
from pydantic import ValidationError

from gateway import __version__
from gateway.app import run
from gateway.configuration import ConfigurationError, effective, load
from gateway.server import PortTaken
from gateway.settings import KeySettings, Settings

CONFIG = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The TOML file. Single fields are overridden by GATEWAY_SECTION_FIELD in the environment.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gateway")
def main() -> None:
    """An OpenAI-compatible gateway in front of vLLM workers."""


@main.command()
@CONFIG
def serve(path: Path) -> None:
    """Serve until SIGTERM; a second one ends it at once."""
    settings = _load(path)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpcore", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        uvloop.run(run(settings))
    except PortTaken as error:
        raise click.ClickException(str(error)) from None


@main.command()
@CONFIG
def check(path: Path) -> None:
    """Check a configuration and print every setting that is in effect. Exit status 2 if it has problems."""
    for line in effective(_load(path)):
        click.echo(line)


@main.group()
def keys() -> None:
    """The keys that callers present."""


@keys.command()
@CONFIG
@click.option("--tenant", required=True, help="The id of one of [[tenants]].")
@click.option("--id", "key_id", help="The key's own name. It is not secret. Left out: one is made.")
def create(path: Path, tenant: str, key_id: str | None) -> None:
    """Make a key. The secret is printed once; the configuration takes its hash."""
    settings = _load(path, needs_keys=False)
    known = [of.id for of in settings.tenants]
    if tenant not in known:
        raise click.UsageError(f"--tenant {tenant}: not in {path}, which has: {', '.join(known) or 'none'}")
    taken = {of.id for of in settings.keys}
    key_id = key_id or f"{tenant[:48]}-{secrets.token_hex(4)}"  # the whole within the 64 that an id may have
    if key_id in taken:
        raise click.UsageError(f"--id {key_id}: there is a key of that name already; choose another")
    secret = f"sk-{secrets.token_urlsafe(32)}"
    try:
        key = KeySettings(id=key_id, tenant=tenant, sha256=hashlib.sha256(secret.encode()).hexdigest())
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise click.UsageError(f"--id {key_id}: {reason}") from None
    click.echo(f"The key, shown this once:\n\n    {secret}\n\nAdd to {path}, and restart the gateway:\n")
    click.echo(f'[[keys]]\nid = "{key.id}"\ntenant = "{key.tenant}"\nsha256 = "{key.sha256}"')


def _load(path: Path, *, needs_keys: bool = True) -> Settings:
    try:
        return load(path, needs_keys=needs_keys)
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        count = len(error.problems)
        click.echo(f"{path}: {count} problem{'s' if count > 1 else ''}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
