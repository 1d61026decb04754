"""The commands, one module each; here is what they share: the file, and how they fail.

Exit status: 0, 1 if what a command needs is away or in the way, 2 if the call or the configuration is wrong.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gateway.configuration import ConfigurationError, load
from gateway.errors import GatewayError, StoreUnavailable
from gateway.settings import Settings

ADMIN_KEY = "GATEWAY_ADMIN_KEY"
"""Where commands find the admin API's key. It is no setting, although its name looks like one."""

CONFIG = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The TOML file. Single fields are overridden by GATEWAY_SECTION_FIELD in the environment.",
)


def environment() -> dict[str, str]:
    """The variables that settings are taken from."""
    return {name: value for name, value in os.environ.items() if name != ADMIN_KEY}


def loaded(path: Path, *, needs_keys: bool = True) -> Settings:
    """The settings, or an end with status 2 that tells every problem."""
    try:
        return load(path, environment(), needs_keys=needs_keys)
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        count = len(error.problems)
        click.echo(f"{path}: {count} problem{'s' if count > 1 else ''}", err=True)
        sys.exit(2)


@contextmanager
def failures_told() -> Iterator[None]:
    """An error of the gateway's rooms becomes a message and an exit status."""
    try:
        yield
    except StoreUnavailable as error:
        reason = error.detail or error.message
        raise click.ClickException(
            f"Redis does not answer as it should ({reason}). Start it, or correct store.url in the "
            "configuration, or GATEWAY_STORE_URL"
        ) from None
    except GatewayError as error:
        raise click.UsageError(error.message) from None
