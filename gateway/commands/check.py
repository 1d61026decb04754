"""gateway check: is a configuration in order, and what does it say?"""

from pathlib import Path

import click

from gateway.commands import CONFIG, loaded
from gateway.configuration import effective


@click.command()
@CONFIG
def check(path: Path) -> None:
    """Check a configuration and print every setting that is in effect. Exit status 2 if it has problems."""
    for line in effective(loaded(path)):
        click.echo(line)
