"""Does the worker say what the script says, and note who was there?"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.chaos import raw, visits
from benchmarks.chaos.calls import LEFT, Call, Wish
from benchmarks.chaos.script import Manner, Words, finish_reason, manner, tokens
from benchmarks.chaos.visits import Visit, VisitLog
from benchmarks.chaos.worker import ChaosWorker

GUARD_S = 30.0
NAME = "w0"


def request_id(how: Manner) -> str:
    """Of a request that is treated so, with at least two tokens to say."""
    return next(
        name
        for name in (f"c{number}" for number in range(100_000))
        if manner(name, NAME) is how and len(tokens(name, 8)) > 1
    )


def wish(how: Manner, *, chat: bool = True, stream: bool = True) -> Wish:
    return Wish(request_id(how), "open", chat, stream, max_tokens=8, prompt="Well?", with_usage=stream)


class Stage:
    """A worker, and its log."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self._log = log

    async def ask(self, wish: Wish) -> Call:
        return await raw.ask(wish, "sk-none", 0, self.port)

    def visits(self) -> list[Visit]:
        return visits.read(self._log.read_text().splitlines())


@asynccontextmanager
async def staged(folder: Path, interval_s: float = 0.0) -> AsyncIterator[Stage]:
    log = VisitLog(folder / "visits.jsonl", NAME)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ChaosWorker(NAME, interval_s, log), "127.0.0.1", 0)
    async with asyncio.timeout(GUARD_S), server:
        yield Stage(server.sockets[0].getsockname()[1], folder / "visits.jsonl")


@pytest.mark.parametrize("chat", [True, False])
async def test_a_stream_has_the_tokens_of_the_script_their_reason_usage_and_end(
    tmp_path: Path, *, chat: bool
) -> None:
    asked = wish(Manner.WELL, chat=chat)
    async with staged(tmp_path) as stage:
        call = await stage.ask(asked)
        [visit] = stage.visits()
    assert call.text == "".join(tokens(asked.id, 8))
    assert (call.finish_reason, call.usages, call.done) == (finish_reason(asked.id, 8), 1, True)
    assert call.is_success
    assert call.first_at
    assert (visit.request_id, visit.how, visit.tokens) == (asked.id, "done", len(tokens(asked.id, 8)))
    assert visit.first_at
    assert visit.ended_at
    assert call.begun_at <= visit.came_at <= visit.first_at <= visit.ended_at <= call.ended_at


@pytest.mark.parametrize("chat", [True, False])
async def test_a_plain_answer_is_that_of_the_script(tmp_path: Path, *, chat: bool) -> None:
    asked = wish(Manner.WELL, chat=chat, stream=False)
    async with staged(tmp_path) as stage:
        call = await stage.ask(asked)
    assert call.body == Words(asked.id, 8, "Well?", chat=chat).plain()
    assert json.loads(call.body)["usage"]["completion_tokens"] == len(tokens(asked.id, 8))
    assert call.is_success


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        (Manner.FAILS, "500"),
        (Manner.BUSY, "503"),
        (Manner.ENDING, "500"),
        (Manner.ERRS, "500 in a stream"),
        (Manner.BREAKS, "connection broke"),
        (Manner.UNENDED, "ended without [DONE]"),
    ],
)
async def test_each_way_to_fail_is_what_it_says(tmp_path: Path, how: Manner, outcome: str) -> None:
    async with staged(tmp_path) as stage:
        call = await stage.ask(wish(how))
        [visit] = stage.visits()
    assert (call.outcome, visit.how, visit.manner) == (outcome, how, how)
    assert "".join(tokens(call.wish.id, 8)).startswith(call.text)
    assert call.finish_reason is None
    assert not call.is_success


async def test_a_caller_who_leaves_is_noted_with_what_was_made_for_it(tmp_path: Path) -> None:
    name = request_id(Manner.WELL)
    asked = Wish(name, "open", True, True, max_tokens=8, prompt="Well?", leaves_after_tokens=1)
    async with staged(tmp_path, interval_s=0.05) as stage:
        call = await stage.ask(asked)
        while not (visit := stage.visits()[0]).how:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)
    assert call.broke == LEFT
    assert visit.how == "left"
    assert 1 <= visit.tokens < len(tokens(name, 8))


def test_a_worker_that_died_leaves_a_visit_without_an_end(tmp_path: Path) -> None:
    log = VisitLog(tmp_path / "visits.jsonl", NAME)
    first, second = log.came("c1", Manner.WELL), log.came("c2", Manner.WELL)
    log.first(first)
    log.ended(second, "done", 3)
    one, two = visits.read((tmp_path / "visits.jsonl").read_text().splitlines())
    assert (one.request_id, one.ended_at, one.how, one.is_done) == ("c1", None, "", False)
    assert (two.request_id, two.tokens, two.is_done) == ("c2", 3, True)


def test_the_same_request_is_the_same_everywhere_and_no_other_is_like_it() -> None:
    assert tokens("c1", 8) == tokens("c1", 8)
    assert not set(tokens("c1", 8)) & set(tokens("c2", 8))
    reasons = {finish_reason(f"c{number}", 8) for number in range(50)}
    assert reasons == {"length", "stop"}
    assert all(1 <= len(tokens(f"c{number}", 8)) <= 8 for number in range(50))
    assert len(tokens("c1", 1)) == 1
