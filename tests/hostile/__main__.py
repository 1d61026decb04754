"""Writes TABLE.md anew: `python -m tests.hostile`."""

import asyncio
import sys

import uvloop

from tests.hostile.stage import stage
from tests.hostile.table import GROUPS, HEAD, TABLE, section


async def write() -> list[str]:
    """Returns what is not as it must be."""
    text, wrong = HEAD, list[str]()
    for group in GROUPS.values():
        async with stage(**group.settings) as on:
            text += await section(group, on, wrong)
    await asyncio.to_thread(TABLE.write_text, text, encoding="utf-8")
    return wrong


if __name__ == "__main__":
    problems = uvloop.run(write())
    print("\n".join(problems) or f"wrote {TABLE.name}")
    sys.exit(bool(problems))
