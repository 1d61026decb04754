"""Do news reach every process that listens, and does each learn of every gap?"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.errors import StoreUnavailable
from gateway.settings import Store
from gateway.stores.redis import bulletin
from gateway.stores.redis.bulletin import Bulletin
from gateway.stores.redis.target import Target
from tests.ports import free_ports
from tests.redis_server import RedisServer

DEADLINE_S = 20
GAP = "a gap"


@contextlib.asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Redis]:
    target = Target(Store(url=url, timeout_ms=1000))
    async with target.client() as client:
        yield client
    await target.aclose()


class Told:
    """What a listener was told, in order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def news(self, text: str) -> None:
        self._queue.put_nowait(text)

    def gap(self) -> None:
        self._queue.put_nowait(GAP)

    async def next(self) -> str:
        async with asyncio.timeout(DEADLINE_S):
            return await self._queue.get()


class Lines(logging.Handler):
    """What the bulletin logged, as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._grew = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self._grew.set()

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.texts) < count:
                self._grew.clear()
                await self._grew.wait()


@pytest.fixture
async def lines() -> AsyncIterator[Lines]:
    handler = Lines()
    bulletin.log.addHandler(handler)
    yield handler
    bulletin.log.removeHandler(handler)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulletin, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(bulletin, "LONGEST_PAUSE_S", 0.02)


async def test_news_reach_every_listener_in_order(redis_url: str) -> None:
    one, other = Told(), Told()
    async with client_of(redis_url) as client, client_of(redis_url) as another:
        board = Bulletin(client)
        async with (
            board.listening(one.news, one.gap),
            Bulletin(another).listening(other.news, other.gap),
        ):
            gaps = [await one.next(), await other.next()]
            for text in ("key:a", "tenant:b", "workers"):
                await board.publish(text)
            heard = [[await told.next() for _ in range(3)] for told in (one, other)]

    assert gaps == [GAP, GAP]
    assert heard == [["key:a", "tenant:b", "workers"]] * 2


async def test_gateways_of_another_prefix_are_not_told(redis_url: str) -> None:
    told = Told()
    async with client_of(redis_url) as client, Bulletin(client, "one").listening(told.news, told.gap):
        await told.next()
        await Bulletin(client, "two").publish("key:of-two")
        await Bulletin(client, "one").publish("key:of-one")

        assert await told.next() == "key:of-one"


async def test_a_redis_that_restarts_is_a_gap_and_news_come_again(lines: Lines) -> None:
    told = Told()
    with RedisServer() as server:
        async with client_of(server.url) as client:
            board = Bulletin(client)
            async with board.listening(told.news, told.gap):
                await told.next()
                server.kill()
                await lines.reach(1)
                server.start()
                after = await told.next()
                await board.publish("key:a")

                assert [after, await told.next()] == [GAP, "key:a"]

    assert len(lines.texts) == 2, "one line that it was lost, one that it is back"
    assert lines.texts[0].startswith("no news from Redis (ConnectionError: ")
    assert lines.texts[1] == "news from Redis again"


async def test_a_redis_that_freezes_is_noticed_although_its_sockets_stay_open(lines: Lines) -> None:
    told = Told()
    with RedisServer() as server:
        async with client_of(server.url) as client, Bulletin(client).listening(told.news, told.gap):
            await told.next()
            server.freeze()
            await lines.reach(1)
            server.thaw()

            assert await told.next() == GAP

    assert lines.texts[0].startswith("no news from Redis (")


async def test_a_quiet_redis_is_not_taken_for_a_lost_one(
    redis_url: str, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulletin, "QUIET_S", 0.05)
    told = Told()
    async with (
        client_of(redis_url) as client,
        client_of(redis_url) as another,
        Bulletin(client).listening(told.news, told.gap),
    ):
        await told.next()
        before = await pings(another)
        async with asyncio.timeout(DEADLINE_S):
            while await pings(another) < before + 5:  # noqa: ASYNC110 - Redis tells nobody
                await asyncio.sleep(0.01)
        await Bulletin(another).publish("key:a")

        assert await told.next() == "key:a", "no gap came before it"
    assert lines.texts == []


async def pings(client: Redis) -> int:
    counts = await client.info("commandstats")
    return int(counts.get("cmdstat_ping", {"calls": 0})["calls"])


async def test_a_connection_that_is_cut_and_made_again_at_once_is_a_gap(redis_url: str) -> None:
    told = Told()
    async with (
        client_of(redis_url) as client,
        client_of(redis_url) as another,
        Bulletin(client).listening(told.news, told.gap),
    ):
        await told.next()
        await another.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]

        assert await told.next() == GAP
        await Bulletin(another).publish("key:a")
        assert await told.next() == "key:a"


async def test_it_begins_without_redis_and_hears_once_there_is_one(lines: Lines) -> None:
    told = Told()
    (port,) = free_ports(1)
    server = RedisServer(port=port)
    async with client_of(server.url) as client, Bulletin(client).listening(told.news, told.gap):
        await lines.reach(1)
        with server:
            assert await told.next() == GAP

    assert len(lines.texts) <= 3, "no line for each attempt"


async def test_a_redis_that_refuses_is_one_line_however_often_it_is_tried(lines: Lines) -> None:
    attempts: asyncio.Queue[None] = asyncio.Queue()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.put_nowait(None)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        async with client_of(url) as client:
            told = Told()
            async with Bulletin(client).listening(told.news, told.gap), asyncio.timeout(DEADLINE_S):
                for _ in range(10):
                    await attempts.get()

    assert len(lines.texts) == 1


async def test_a_bug_of_the_listener_does_not_make_it_deaf(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()

    def fails_once(text: str) -> None:
        if text == "key:bad":
            raise ZeroDivisionError
        told.news(text)

    async with client_of(redis_url) as client:
        board = Bulletin(client)
        async with board.listening(fails_once, told.gap):
            await told.next()
            await board.publish("key:bad")
            again = await told.next()
            await board.publish("key:good")

            assert [again, await told.next()] == [GAP, "key:good"]
    assert "news could not be taken in; listening begins anew" in caplog.messages
    assert any(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records)


async def test_an_end_while_it_waits_to_begin_anew_is_an_end(redis_url: str, lines: Lines) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    async with client_of(redis_url) as client:
        async with Bulletin(client).listening(lambda text: None, fails):
            await lines.reach(1)
        # By the end of this the loop has called all that was due before.
        await asyncio.sleep(2 * bulletin.LONGEST_PAUSE_S)
        running = {task.get_name() for task in asyncio.all_tasks()}

    assert "bulletin" not in running


async def test_a_loop_that_cancels_all_its_tasks_is_no_bug(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    async with client_of(redis_url) as client, Bulletin(client).listening(told.news, told.gap):
        await told.next()
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "bulletin")
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.1)

    assert caplog.messages == []


async def test_at_the_end_no_connection_is_left_that_listens(redis_url: str) -> None:
    told = Told()
    async with client_of(redis_url) as client, client_of(redis_url) as another:
        async with Bulletin(client).listening(told.news, told.gap):
            await told.next()
            during = await another.pubsub_numsub("gateway:news")
        async with asyncio.timeout(DEADLINE_S):
            while (await another.pubsub_numsub("gateway:news"))[0][1]:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)

    assert during == [("gateway:news", 1)]


async def test_an_end_in_the_middle_of_an_attempt_to_connect_leaves_nothing_behind() -> None:
    arrived = asyncio.Event()
    gone = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        while await reader.read(1024):
            pass
        writer.close()
        gone.set()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server, asyncio.timeout(DEADLINE_S):
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        async with client_of(url) as client, Bulletin(client).listening(lambda text: None, lambda: None):
            await arrived.wait()
        await gone.wait()


async def test_news_that_cannot_be_published_are_told_as_the_store_being_away() -> None:
    (port,) = free_ports(1)
    async with client_of(f"redis://127.0.0.1:{port}/0") as client:
        with pytest.raises(StoreUnavailable) as caught:
            await Bulletin(client).publish("workers")

    assert caught.value.retry_after_s == 1
    assert str(port) not in caught.value.message
    assert "ConnectionError" in caught.value.detail
