"""gateway serve: how is the server started?"""

import functools
import logging
import sys
from pathlib import Path

import click

from gateway.commands import CONFIG, environment, loaded
from gateway.configuration import load
from gateway.launch import run
from gateway.server import PortTaken
from gateway.usage import RecordsUnwritable


@click.command()
@CONFIG
def serve(path: Path) -> None:
    """Serve until SIGTERM; a second one ends it at once. SIGUSR2 replaces several processes one by one.

    Tenants and keys of the file may be changed while it runs: they are read again by themselves, and at
    SIGHUP.
    """
    settings = loaded(path)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpcore", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        status = run(settings, path, functools.partial(load, path, environment()))
    except (PortTaken, RecordsUnwritable) as error:
        raise click.ClickException(str(error)) from None
    sys.exit(status)
