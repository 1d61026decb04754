"""Does a start load only what it uses? Watched by modules: how long they take is another machine's matter."""

import json
import subprocess
import sys

import pytest

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"
COMMAND = "import gateway.__main__; gateway.__main__.main.get_command(None, 'serve')"
GATEWAY = """
import asyncio
from gateway.app import Gateway
from gateway.configuration import parse

worker = {"id": "w0", "url": "http://127.0.0.1:9", "model": "m"}
content = {"models": [{"name": "m"}], "workers": [worker], "auth": {"required": False}}

async def start():
    async with Gateway(parse(content, {})):
        pass

asyncio.run(start())
"""
# What is heavy, and why the server can do without it.
NOT_NEEDED = {
    "gateway.admin.description",  # is made when somebody asks for the document
    "gateway.commands.usage",  # other commands are other programs
    "gateway.openapi",
    "gateway.stores.redis",  # the memory store is the default
    "hiredis",
    "redis",
}


def loaded_by(program: str) -> set[str]:
    """The modules of a fresh interpreter that has run this."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{LOADED}"], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("program", [COMMAND, f"{COMMAND}\n{GATEWAY}"], ids=["loaded", "started"])
def test_a_server_with_the_memory_store_loads_nothing_that_is_heavy_and_not_needed(program: str) -> None:
    loaded = loaded_by(program)

    assert {"gateway.app", "gateway.commands.serve", "uvicorn"} <= loaded
    assert loaded & NOT_NEEDED == set()


def test_the_command_line_alone_loads_no_command() -> None:
    loaded = loaded_by("import gateway.__main__")

    assert {name for name in loaded if name.startswith("gateway")} == {"gateway", "gateway.__main__"}
    assert not {"asyncio", "pydantic", "uvicorn"} & loaded


def test_the_commands_for_keys_load_no_server() -> None:
    loaded = loaded_by("import gateway.__main__; gateway.__main__.main.get_command(None, 'keys')")

    assert "gateway.commands.keys" in loaded
    assert not {"gateway.app", "uvicorn", "starlette", "prometheus_client"} & loaded
