"""Do a plain answer's bytes reach the caller as they are, whole or in parts, and is its usage read?"""

import pytest

from gateway import relay
from gateway.errors import WorkerBroke
from gateway.model import Usage
from tests.gateway.relay.relaying import DONE, JSON, PLAIN, SSE, TOKEN, Read, Run, ScriptedAnswer, after
from tests.gateway.test_model import Clock


async def plain(*reads: Read, **answer: object) -> Run:
    return await Run(ScriptedAnswer(reads, **answer)).run()  # type: ignore[arg-type]


async def test_a_plain_answer_passes_with_its_length_and_its_usage_is_read() -> None:
    ran = await plain(PLAIN, length=len(PLAIN))
    caller = ran.caller
    assert (caller.status, caller.length, caller.headers) == (200, len(PLAIN), [JSON])
    assert (caller.is_reply, caller.writes, caller.last) == (True, [], PLAIN)
    assert (ran.trip.outcome, ran.trip.usage) == ("ok", Usage(7, 2))
    assert ran.trip.first_token_at == 1000.0


async def test_what_has_come_with_the_head_is_not_waited_for() -> None:
    answer = ScriptedAnswer([PLAIN], length=len(PLAIN))
    answer.is_there = True
    answer.read = None  # type: ignore[assignment, method-assign]
    ran = await Run(answer).run()
    assert (ran.caller.is_reply, ran.caller.body, ran.trip.usage) == (True, PLAIN, Usage(7, 2))


async def test_the_outcome_is_noted_before_the_answer_leaves() -> None:
    for length in (None, len(PLAIN)):
        ran = await plain(PLAIN, length=length)
        assert ran.outcomes == ["ok"]


async def test_the_first_bytes_of_a_plain_answer_tell_that_its_prompt_is_done_and_no_more() -> None:
    clock = Clock()
    ran = await Run(ScriptedAnswer([after(clock, 5, PLAIN[:9]), after(clock, 2, PLAIN[9:])]), clock).run()
    assert ran.watching.prompts_done == [1005.0] == [ran.trip.first_token_at]
    assert (ran.watching.first_tokens, ran.watching.told) == ([], [])


@pytest.mark.parametrize("length", [None, len(PLAIN)])
async def test_a_plain_answer_of_many_reads_passes_read_by_read(length: int | None) -> None:
    ran = await plain(PLAIN[:10], PLAIN[10:20], PLAIN[20:], length=length)
    caller = ran.caller
    assert (caller.writes, caller.last) == ([PLAIN[:10], PLAIN[10:20]], PLAIN[20:])  # the end with bytes
    assert (caller.is_reply, caller.length) == (False, length)
    assert (ran.trip.outcome, ran.trip.usage) == ("ok", Usage(7, 2))


async def test_an_answer_of_unknown_length_in_one_read_passes_in_one_write() -> None:
    ran = await plain(PLAIN)
    assert (ran.caller.is_reply, ran.caller.length) == (False, None)
    assert (ran.caller.writes, ran.caller.last, ran.trip.usage) == ([], PLAIN, Usage(7, 2))


@pytest.mark.parametrize("length", [None, 0])
async def test_an_empty_answer_is_an_answer(length: int | None) -> None:
    ran = await plain(status=204, length=length)
    assert (ran.caller.status, ran.caller.last, ran.caller.length) == (204, b"", length)


@pytest.mark.parametrize("body", [b'{"usage":null}', b"{}"])
async def test_an_answer_without_usage_is_whole_all_the_same(body: bytes) -> None:
    ran = await plain(body)
    assert (ran.trip.outcome, ran.trip.usage) == ("ok", None)


@pytest.mark.parametrize("length", [None, 1])
async def test_an_answer_that_is_no_json_passes_and_counts_as_incomplete(length: int | None) -> None:
    ran = await plain(b"{", length=length)
    assert (ran.caller.body, ran.trip.outcome, ran.trip.usage) == (b"{", "incomplete", None)


@pytest.mark.parametrize("reads", [[PLAIN[:30], PLAIN[30:]], [PLAIN]])
@pytest.mark.parametrize(("limit", "usage"), [(len(PLAIN), Usage(7, 2)), (len(PLAIN) - 1, None)])
async def test_an_answer_too_large_to_keep_passes_unread(
    reads: list[bytes], limit: int, usage: Usage | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_READ_BYTES", limit)
    for length in (None, len(PLAIN)):
        ran = await plain(*reads, length=length)
        assert (ran.caller.body, ran.trip.outcome, ran.trip.usage) == (PLAIN, "ok", usage)


async def test_a_plain_answer_that_breaks_before_its_first_byte_has_not_begun() -> None:
    ran = Run(ScriptedAnswer([WorkerBroke("reset")]))
    await ran.fails(WorkerBroke)
    assert (ran.caller.status, ran.watching.heard_nothing) == (0, True)


async def test_a_plain_answer_that_breaks_later_is_not_ended_as_if_whole() -> None:
    ran = Run(ScriptedAnswer([b'{"a":', b"1", WorkerBroke("reset")]))
    await ran.fails(WorkerBroke)
    assert (ran.caller.body, ran.caller.last, ran.trip.outcome) == (b'{"a":', None, "")


async def test_a_caller_who_asked_for_a_stream_gets_what_is_none_as_it_is() -> None:
    ran = await Run(ScriptedAnswer([PLAIN]), stream=True).run()
    assert (ran.caller.body, ran.caller.headers, ran.trip.usage) == (PLAIN, [JSON], Usage(7, 2))


async def test_a_stream_that_nobody_asked_for_is_read_as_plain() -> None:
    ran = await Run(ScriptedAnswer([TOKEN + DONE], headers=(SSE,))).run()
    assert (ran.caller.body, ran.trip.outcome) == (TOKEN + DONE, "incomplete")


async def test_an_answer_without_a_content_type_is_plain() -> None:
    ran = await Run(ScriptedAnswer([PLAIN], headers=()), stream=True).run()
    assert (ran.caller.headers, ran.trip.outcome) == ([], "ok")


async def test_a_stream_of_another_success_than_200_is_plain() -> None:
    ran = await Run(ScriptedAnswer([PLAIN], 201, headers=(SSE,)), stream=True).run()
    assert (ran.caller.status, ran.caller.body, ran.trip.usage) == (201, PLAIN, Usage(7, 2))


async def test_plain_answers_need_no_pipe() -> None:
    ran = await Run(ScriptedAnswer([PLAIN[:9], PLAIN[9:]]), piped=True).run()
    assert (ran.caller.piped, ran.caller.chunks) == ([], [])
