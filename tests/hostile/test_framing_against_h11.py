"""Does a strict reader find the same requests in the same bytes?"""

from collections.abc import Iterator

import h11
import pytest

from gateway.exchange import Exchange, Line
from gateway.framing import MAX_HEAD_BYTES
from tests.gateway.lanes import JSON, LIMIT, House, house
from tests.hostile.cases import Case
from tests.hostile.table import GROUPS

NAMES = ("framing", "lines", "chunks", "several", "targets", "heads")
# Where we read a request and h11 does not, and why nobody can be misled by it.
OURS_ALONE = {
    "two blanks in the first line": "the words are the same, and RFC 9112 lets a reader go by blanks",
    "empty lines before a request": "RFC 9112 has at least one ignored; h11 leaves that to its user",
    "40 empty lines between two": "likewise",
}


def cases(name: str) -> list[Case]:
    """Those that come to an end by themselves, and in time."""
    of_group = GROUPS[name].cases
    return [of for of in of_group if of.then != "waits" and not of.quiet and len(of.say) < 200_000]


def read_by_h11(said: bytes) -> Iterator[bytes]:
    """The bodies of all requests until one is refused, or the last."""
    while said:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
        connection.receive_data(said)
        body = b""
        try:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event in (h11.NEED_DATA, h11.PAUSED):
                    return
                body += event.data if isinstance(event, h11.Data) else b""
        except h11.RemoteProtocolError:
            return
        yield body
        if connection.their_state in (h11.MUST_CLOSE, h11.CLOSED):
            return
        said, _ = connection.trailing_data


class Reader:
    """An application that only notes the bodies it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def serve(self, exchange: Exchange, line: Line) -> None:
        body = await line.body(LIMIT)
        assert body is not None
        self.bodies.append(body)
        await exchange.reply(200, [JSON], b"{}")

    async def read(self, at: House, said: bytes) -> list[bytes]:
        self.bodies = []
        visitor = await at.visit()
        visitor.say(said + b"\x00")  # which ends every connection
        while await visitor.reader.read(65536):
            pass
        return self.bodies


@pytest.mark.parametrize("name", NAMES)
async def test_no_request_is_read_where_a_strict_reader_reads_none_or_another(name: str) -> None:
    reader = Reader()
    async with house("asgi", reader.serve) as at:
        for case in cases(name):
            ours, theirs = await reader.read(at, case.say), list(read_by_h11(case.say))
            if case.name in OURS_ALONE:
                assert len(ours) > len(theirs), f"{case.name}: there is nothing to excuse"
            else:
                assert ours == theirs[: len(ours)], case.name


def test_what_is_excused_is_tried() -> None:
    assert OURS_ALONE.keys() <= {case.name for name in NAMES for case in cases(name)}
