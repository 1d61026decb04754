"""The command line."""

import contextlib
import gc
import importlib
from collections.abc import Iterator

import click

from gateway import __version__

# Each command in a module of its name, which is loaded when it is called: `serve` starts without the tables
# of `usage`, and `keys` without a server.
COMMANDS = ("check", "keys", "serve", "usage")


class Commands(click.Group):
    """The commands by their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with no_garbage_sought():
            module = importlib.import_module(f"gateway.commands.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command


@contextlib.contextmanager
def no_garbage_sought() -> Iterator[None]:
    """What modules are made of stays: to look through it again and again is a fifth of a start."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # or the first look would be at all of it
        if was_enabled:
            gc.enable()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gateway")
def main() -> None:
    """An OpenAI-compatible gateway in front of vLLM workers."""


if __name__ == "__main__":
    main()
