"""The command line."""

import click

from gateway import __version__
from gateway.commands.check import check
from gateway.commands.keys import keys
from gateway.commands.serve import serve
from gateway.commands.usage import usage


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gateway")
def main() -> None:
    """An OpenAI-compatible gateway in front of vLLM workers."""


for command in (serve, check, keys, usage):
    main.add_command(command)

if __name__ == "__main__":
    main()
