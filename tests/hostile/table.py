"""Which groups of cases are there, and how does the table of what came of them look?"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hostile import bodies, framing, heads, media, slow
from tests.hostile.cases import Case, essence
from tests.hostile.stage import Outcome, Stage, meaning

GUARD_S = 10.0  # who waits longer than that in one case waits for what will never come
TABLE = Path(__file__).with_name("TABLE.md")
COLUMNS = (
    "| case | input | answers | then, the connection | requests at the worker |\n|---|---|---|---|---|\n"
)
HEAD = """# Hostile input

What the gateway has answered to each of these connections, and what its worker saw. Written by
`python -m tests.hostile`; the tests of this folder fail when it is no longer so. An input is shown without
what all requests have: a good first line, `Host`, key, type, length and body.

`goes on`: the next request on the connection is served. `closed`: nothing that follows is read. `waits`: what
follows is taken for the missing part of the refused body.
"""
QUICKLY = {"server": {"header_timeout_s": 0.1, "body_timeout_s": 0.1}}
IN_THE_WEB = {"intake": {"allow_media_urls": True}}


@dataclass(frozen=True)
class Group:
    """Cases for one gateway."""

    title: str
    cases: Sequence[Case]
    settings: dict[str, Any] = field(default_factory=dict)


GROUPS = {
    "framing": Group("Framing: lengths and codings", framing.LENGTHS_AND_CODINGS),
    "lines": Group("Framing: the ends of lines", framing.LINES),
    "chunks": Group("Framing: chunks", framing.CHUNKS),
    "several": Group("Framing: several requests, and other protocols", framing.SEVERAL),
    "targets": Group("Targets", heads.TARGETS),
    "heads": Group("First lines, Host and headers", heads.LINES),
    "keys": Group("Keys", heads.KEYS),
    "identity": Group("Headers that other servers believe", heads.IDENTITY),
    "syntax": Group("JSON: syntax", bodies.SYNTAX),
    "twice": Group("JSON: one name twice", bodies.TWICE),
    "fields": Group("JSON: fields", bodies.FIELDS),
    "codings": Group("Compressed bodies, and other types", bodies.CODINGS),
    "sizes": Group("Sizes", bodies.SIZES),
    "slow": Group("Slowness, where a head may take 0.1 s and so may a read of a body", slow.SLOW, QUICKLY),
    "media": Group("Media", media.MEDIA),
    "allowed media": Group("Media, where the web is allowed", media.ALLOWED, IN_THE_WEB),
}


async def section(group: Group, stage: Stage, wrong: list[str]) -> str:
    """Play all cases. Returns their rows; `wrong` gets those of which something else came than must."""
    rows = []
    for case in group.cases:
        try:
            async with asyncio.timeout(GUARD_S):
                outcome = await stage.play(case)
        except Exception as error:
            error.add_note(f"in the case '{case.name}'")
            raise
        rows.append(f"| {case.name} | {case.shown or essence(case.say)} | {outcome.row} |\n")
        wrong += problems(case, outcome)
    return f"\n## {group.title}\n\n{COLUMNS}{''.join(rows)}"


def problems(case: Case, outcome: Outcome) -> Iterable[str]:
    expected = Outcome(list(case.answers), case.then)
    if (outcome.answers, outcome.then) != (expected.answers, expected.then) or len(outcome.seen) != case.seen:
        yield f"{case.name}: {outcome.row}, instead of {expected.row[:-1]}{case.seen}"
    elif case.means:
        means = meaning(outcome.seen[0], case.means)
        if means != case.means:
            yield f"{case.name}: the worker reads {means}, instead of {case.means}"
