"""Which of a worker's headers does its caller get?"""

import pytest

from gateway.relay.ends import PRIVATE_HEADERS, passed
from tests.gateway.relay.relaying import DONE, JSON, PLAIN, SSE, TOKEN, Run, ScriptedAnswer

MORE = [(b"x-more", b"1"), (b"retry-after", b"7")]


def test_what_tells_about_the_worker_stays_behind() -> None:
    private = [(name, b"x") for name in PRIVATE_HEADERS]
    assert passed([*private, JSON, *MORE, *private]) == [JSON, *MORE]
    assert {b"server", b"date", b"x-request-id", b"location", b"set-cookie"} <= PRIVATE_HEADERS


@pytest.mark.parametrize("streamed", [True, False])
async def test_it_does_so_of_every_answer(streamed: bool) -> None:
    kind, body = (SSE, TOKEN + DONE) if streamed else (JSON, PLAIN)
    private = [(name, b"x") for name in PRIVATE_HEADERS]
    for length in (None, len(body)):
        answer = ScriptedAnswer([body], headers=[*private, kind, *MORE], length=length)
        ran = await Run(answer, stream=streamed).run()
        assert list(ran.caller.headers)[:3] == [kind, *MORE]
        assert not PRIVATE_HEADERS & dict(ran.caller.headers).keys()
