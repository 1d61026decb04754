"""Do callers note what came, whatever it was? Against a server that says it byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from benchmarks.chaos import hostile, raw
from benchmarks.chaos.calls import LEFT, Call, Wish
from benchmarks.chaos.load import SHARES, Load
from benchmarks.chaos.plan import TENANTS, Plan
from benchmarks.chaos.script import PROBE, Words
from benchmarks.chaos.sdk import SdkCaller

GUARD_S = 30.0
WISH = Wish("c1", "open", chat=True, stream=True, max_tokens=8, prompt="Well?", with_usage=True)
WORDS = Words("c1", 8, "Well?", chat=True)
STREAM = (
    WORDS.opening()
    + b"".join(WORDS.token(number) for number in range(len(WORDS.tokens)))
    + WORDS.ending(with_usage=True)
)
ERROR = b'{"error":{"message":"Not now.","type":"server_error","param":null,"code":"draining"}}'
REFUSAL = b"HTTP/1.1 503 No\r\nx-request-id: c1\r\nretry-after-ms: 1\r\ncontent-length: %d\r\n\r\n" % len(
    ERROR
)
Says = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(*answers: bytes, closes: bool = True) -> AsyncIterator[tuple[int, list[bytes]]]:
    """The port of a server that gives these in turn, and the heads that it got."""
    heads: list[bytes] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.read(65536))
        writer.write(answers[min(len(heads), len(answers)) - 1])
        if not closes:
            await ended.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(GUARD_S), server:
        yield server.sockets[0].getsockname()[1], heads
        ended.set()


async def test_a_stream_is_read_to_its_end() -> None:
    async with serving(STREAM) as (port, [*_]):
        call = await raw.ask(WISH, "sk-x", 0, port)
    assert call.is_success
    assert (call.text, call.usages, call.outcome) == ("".join(WORDS.tokens), 1, "whole")


async def test_a_slow_reader_gets_all_of_it_too() -> None:
    async with serving(STREAM) as (port, _):
        call = await raw.ask(replace(WISH, pause_s=0.001), "sk-x", 0, port)
    assert (call.is_success, call.text) == (True, "".join(WORDS.tokens))


async def test_an_error_is_noted_with_status_and_id() -> None:
    async with serving(REFUSAL + ERROR) as (port, _):
        call = await raw.ask(WISH, "sk-x", 0, port)
    assert (call.status, call.answered_id, call.outcome) == (503, "c1", "draining")


@pytest.mark.parametrize("said", [b"", STREAM[:300], STREAM[:-5]])
async def test_an_answer_that_breaks_off_is_no_success(said: bytes) -> None:
    async with serving(said) as (port, _):
        call = await raw.ask(WISH, "sk-x", 0, port)
    assert (call.is_success, call.outcome) == (False, "connection broke")


@pytest.mark.parametrize("leaves", [{"leaves_after_s": 0.05}, {"leaves_after_tokens": 1}])
async def test_a_caller_leaves_when_it_wanted_to(leaves: dict[str, float]) -> None:
    async with serving(STREAM[:600], closes=False) as (port, _):
        call = await raw.ask(replace(WISH, **leaves), "sk-x", 0, port)  # type: ignore[arg-type]
    assert (call.broke, call.outcome) == (LEFT, LEFT)


async def test_where_nobody_listens_it_is_noted() -> None:
    async with serving(STREAM) as (port, _):
        pass
    call = await raw.ask(WISH, "sk-x", 0, port)
    assert (call.status, call.outcome) == (0, "connection refused")
    async with SdkCaller({"open": "sk-x"}, {0: port}) as caller:
        call = await caller.ask(WISH, 0)
    assert (call.status, call.outcome, call.attempts) == (0, "connection refused", ["c1.0", "c1.1", "c1.2"])


async def test_the_sdk_gives_each_attempt_an_id_of_its_own() -> None:
    async with (
        serving(REFUSAL + ERROR, STREAM) as (port, heads),
        SdkCaller({"open": "sk-x"}, {0: port}) as sdk,
    ):
        call = await sdk.ask(WISH, 0)
    assert call.attempts == ["c1.0", "c1.1"]
    assert [
        b"x-request-id: %b" % name.encode() in head.lower()
        for name, head in zip(call.attempts, heads, strict=True)
    ]
    assert (call.is_success, call.text, call.usages) == (True, "".join(WORDS.tokens), 1)


async def test_the_sdk_s_errors_are_noted() -> None:
    async with serving(REFUSAL + ERROR) as (port, _), SdkCaller({"open": "sk-x"}, {0: port}) as sdk:
        call = await sdk.ask(WISH, 0)
    assert (call.status, call.answered_id, call.outcome) == (503, "c1", "draining")
    late = STREAM[:300].rpartition(b"data: ")[0].rpartition(b"\r\n")[0].rpartition(b"\r\n")[0] + b"\r\n"
    event = b"data: %b\n\n" % ERROR
    said = late + b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)
    async with serving(said) as (port, _), SdkCaller({"open": "sk-x"}, {0: port}) as sdk:
        call = await sdk.ask(WISH, 0)
    assert (call.status, call.outcome) == (200, "draining in a stream")
    async with serving(STREAM[:500]) as (port, _), SdkCaller({"open": "sk-x"}, {0: port}) as sdk:
        call = await sdk.ask(WISH, 0)
    assert (call.status, call.outcome) == (200, "connection broke")


@pytest.mark.parametrize("leaves", [{"leaves_after_s": 0.2}, {"leaves_after_tokens": 1}])
async def test_who_calls_through_the_sdk_can_leave(leaves: dict[str, float]) -> None:
    async with (
        serving(STREAM[:600], closes=False) as (port, _),
        SdkCaller({"open": "sk-x"}, {0: port}) as sdk,
    ):
        call = await sdk.ask(replace(WISH, **leaves), 0)  # type: ignore[arg-type]
    assert call.broke == LEFT


@pytest.mark.parametrize("name", hostile.ATTACKS)
async def test_an_attack_says_what_no_honest_caller_says_and_notes_the_answer(name: str) -> None:
    honest = hostile.Attack(200).request(replace(WISH, stream=False, with_usage=False), "sk-x")
    how = hostile.ATTACKS[name]
    assert how.request(replace(WISH, stream=False, with_usage=False), "sk-x") != honest
    async with serving(REFUSAL + ERROR) as (port, _):
        call = await hostile.attack(name, replace(WISH, leaves_after_s=0.0), "sk-x", 0, port)
    assert call.is_hostile
    assert call.expected == how.status
    assert not call.is_success


async def test_calls_are_those_of_the_seed_for_all_tenants_at_about_the_rate() -> None:
    plan = Plan(seconds=0.5, per_s=200.0, burst=20, burst_every_s=0.4)
    async with (
        serving(REFUSAL + ERROR) as (port, _),
        SdkCaller(dict.fromkeys(TENANTS, "sk-x"), {0: port, 1: port}) as sdk,
    ):
        made: list[Call] = []
        load = Load(plan, dict.fromkeys(TENANTS, "sk-x"), {0: port, 1: port}, sdk, made.append)
        await load.run()
        calls = made.copy()
        await load.probe()
    probes = made[len(calls) :]
    assert len({call.wish.id for call in made}) == len(made) > 60
    assert {call.wish.tenant for call in calls} == SHARES.keys()
    assert {call.by for call in calls} > {"raw", "sdk"}
    assert {call.replica for call in probes} == {0, 1}
    assert all(probe.wish.id.startswith(PROBE) for probe in probes)
