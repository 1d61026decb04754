"""Does each process hear soon what the others told, and of none that is gone, through all that Redis does?"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files

import pytest
from redis.asyncio import Redis

from gateway import settings
from gateway.peers import Others, Report, WorkerShare, encode
from gateway.stores.redis import peers
from gateway.stores.redis.peers import KEPT_S, RedisPeers
from gateway.stores.redis.target import Target
from tests.ports import free_ports
from tests.redis_server import RedisServer
from tests.relay import Relay

GUARD_S = 20.0
HASH = "here:peers"
SCRIPT = (files("gateway.stores.redis") / "lua" / "peers.lua").read_text(encoding="utf-8")
REDIS_TIME = "redis.call('TIME')"
CLOCKED = SCRIPT.replace(REDIS_TIME, "redis.call('LRANGE', 'clock', 0, 1)")


class Heard:
    """A peer that tells what a test says, and remembers what it is told."""

    def __init__(self, says: bytes, is_idle: bool = False) -> None:
        self.says = says
        self.idle = is_idle
        self.reports: Mapping[str, bytes] = {}
        self.now_s = 0.0
        self.beats = 0
        self.is_lost = False
        self._changed = asyncio.Event()

    def report(self) -> bytes:
        return self.says

    def is_idle(self) -> bool:
        return self.idle

    def learn(self, reports: Mapping[str, bytes], now_s: float) -> None:
        self.reports, self.now_s, self.is_lost = reports, now_s, False
        self.beats += 1
        self._changed.set()

    def lose(self) -> None:
        self.is_lost = True
        self._changed.set()

    async def until(self, is_so: Callable[["Heard"], bool]) -> None:
        while not is_so(self):
            self._changed.clear()
            await self._changed.wait()

    async def hears(self, **reports: bytes) -> None:
        await self.until(lambda heard: not heard.is_lost and heard.reports == reports)

    async def another_beat(self) -> None:
        """One that began after this call."""
        beats = self.beats
        await self.until(lambda heard: heard.beats >= beats + 2)


@asynccontextmanager
async def telling(
    url: str,
    peer: peers.Peer,
    process: str,
    *,
    prefix: str = "here",
    timeout_s: float = 5.0,
    script: str = "",
) -> AsyncIterator[RedisPeers]:
    target = Target(settings.Store(url=url))
    async with (
        asyncio.timeout(GUARD_S),
        RedisPeers(target, peer, prefix=prefix, process=process, timeout_s=timeout_s, script=script) as it,
    ):
        yield it


async def die(it: RedisPeers) -> None:
    """As by kill -9: it takes no leave."""
    it._cancel()
    await it._link.__aexit__()


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with Target(settings.Store(url=redis_url)).client() as client:
        yield client


async def tell_time(client: Redis, now_s: float) -> None:
    """To those with the CLOCKED script."""
    async with client.pipeline() as change:
        change.delete("clock")
        change.rpush("clock", int(now_s), round(now_s % 1 * 1e6))
        await change.execute()


# Telling and hearing


async def test_three_processes_hear_what_each_has(redis_url: str) -> None:
    ann, bob, cid = Heard(b"ann"), Heard(b"bob\n\0\xff"), Heard(b"cid " * 20_000)
    async with telling(redis_url, ann, "a"), telling(redis_url, bob, "b"), telling(redis_url, cid, "c"):
        await ann.hears(b=bob.says, c=cid.says)
        await bob.hears(a=b"ann", c=cid.says)
        await cid.hears(a=b"ann", b=bob.says)
        ann.says = b"ann again"
        await bob.hears(a=b"ann again", c=cid.says)


async def test_the_time_they_are_told_is_that_of_redis(client: Redis, redis_url: str) -> None:
    assert SCRIPT.count(REDIS_TIME) == 1
    await tell_time(client, 1_790_000_000.25)
    ann = Heard(b"ann")
    async with telling(redis_url, ann, "a", script=CLOCKED):
        assert ann.now_s == 1_790_000_000.25


async def test_gateways_with_other_prefixes_do_not_hear_of_each_other(client: Redis, redis_url: str) -> None:
    here, there = Heard(b"here"), Heard(b"there")
    async with telling(redis_url, here, "a"), telling(redis_url, there, "b", prefix="there"):
        await here.another_beat()
        await there.another_beat()
        assert (here.reports, there.reports) == ({}, {})
        assert sorted(await client.keys()) == [HASH, "there:peers"]


async def test_what_they_tell_is_what_others_can_read(redis_url: str) -> None:
    class Peer(Heard):
        others = Others("b", asyncio.get_running_loop().time)

        def learn(self, reports: Mapping[str, bytes], now_s: float) -> None:
            self.others.update(reports, now_s)
            super().learn(reports, now_s)

    bob = Peer(encode(Report()))
    ann = Heard(encode(Report({"w0": WorkerShare(3)})))
    async with telling(redis_url, ann, "a"), telling(redis_url, bob, "b"):
        await bob.until(lambda heard: bool(heard.reports))
        assert bob.others.worker("w0") == WorkerShare(3)


# Leaving


async def test_a_process_that_ends_is_forgotten_at_once(client: Redis, redis_url: str) -> None:
    ann = Heard(b"ann")
    async with telling(redis_url, ann, "a"):
        async with telling(redis_url, Heard(b"bob"), "b"):
            await ann.hears(b=b"bob")
        assert await client.hkeys(HASH) == ["a"]
        await ann.hears()


async def test_it_takes_its_leave_after_the_call_that_is_under_way(client: Redis, redis_url: str) -> None:
    async with telling(redis_url, Heard(b"bob"), "b") as bob:
        bob._tell()
        assert bob._link.is_busy
    assert await client.exists(HASH) == 0


async def test_one_that_dies_is_forgotten_after_three_seconds(client: Redis, redis_url: str) -> None:
    await tell_time(client, 100.0)
    ann, bob = Heard(b"ann"), Heard(b"bob")
    async with telling(redis_url, ann, "a", script=CLOCKED):
        async with telling(redis_url, bob, "b", script=CLOCKED) as other:
            await ann.hears(b=b"bob")
            await die(other)
        await tell_time(client, 100.0 + KEPT_S)
        await ann.another_beat()
        assert ann.reports == {"b": b"bob"}
        await tell_time(client, 100.0 + KEPT_S + 0.001)
        await ann.hears()
        assert await client.hkeys(HASH) == ["a"]


async def test_when_all_have_died_nothing_is_left(client: Redis, redis_url: str) -> None:
    async with telling(redis_url, Heard(b"ann"), "a") as ann:
        await die(ann)
    assert 0 < await client.pttl(HASH) <= 2000 * KEPT_S


async def test_a_clock_that_is_set_back_leaves_no_dead_behind(client: Redis, redis_url: str) -> None:
    await tell_time(client, 500.0)
    ann = Heard(b"ann")
    async with telling(redis_url, Heard(b"bob"), "b", script=CLOCKED) as bob:
        await die(bob)
    await tell_time(client, 100.0)
    async with telling(redis_url, ann, "a", script=CLOCKED):
        assert ann.reports == {}


# How often


async def test_while_nothing_is_under_way_it_tells_seldom_until_it_is_woken(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "QUIET_BEAT_S", 1e6)
    ann, bob = Heard(b"ann"), Heard(b"idle", is_idle=True)
    async with telling(redis_url, bob, "b") as it, telling(redis_url, ann, "a"):
        await ann.hears(b=b"idle")
        assert it._due is not None
        assert it._due.when() > asyncio.get_running_loop().time() + 1e5
        bob.says, bob.idle = b"busy", False
        it.notice()
        await ann.hears(b=b"busy")
        await bob.hears(a=b"ann")


async def test_whoever_is_idle_hears_often_of_those_who_are_not(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "QUIET_BEAT_S", 0.2)
    ann, bob = Heard(b"ann"), Heard(b"bob", is_idle=True)
    async with telling(redis_url, bob, "b") as it, telling(redis_url, ann, "a"):
        await bob.hears(a=b"ann")
        assert not it._is_quiet
        await bob.another_beat()
        assert it._is_quiet, "nothing has changed since"


async def test_it_wakes_up_no_more_often_than_it_beats(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "BEAT_S", 1e6)
    bob = Heard(b"bob", is_idle=True)
    async with telling(redis_url, bob, "b") as it:
        assert it._is_quiet
        for _ in range(3):
            it.notice()
        assert it._due is not None
        assert it._due.when() > asyncio.get_running_loop().time() + 1e5
        assert not it._link.is_busy


async def test_among_many_it_beats_less_often(
    client: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "BEAT_S", 1e6)
    await tell_time(client, 100.0)
    await client.hset(HASH, mapping={f"p{number}": "100000000 it" for number in range(2 * peers.MANY)})
    ann = Heard(b"ann")
    async with telling(redis_url, ann, "a", script=CLOCKED) as it:
        assert len(ann.reports) == 2 * peers.MANY
        assert it._due is not None
        assert round((it._due.when() - it._told_at_s) / 1e6) == 2


async def test_a_call_is_not_begun_while_another_is_under_way(
    client: Redis, shared_redis: RedisServer, redis_url: str
) -> None:
    await client.config_resetstat()
    bob = Heard(b"bob")
    async with Relay(shared_redis.port) as relay, telling(relay.url, bob, "b") as it:
        relay.stall_answers()
        it._tell()
        await relay.holding.wait()
        it._tell()
        it._tell()
        relay.resume()
        await bob.another_beat()
    stats = await client.info("commandstats")
    calls = stats["cmdstat_eval"]["calls"] + stats["cmdstat_evalsha"]["calls"]
    assert calls == bob.beats + 1, "one for each answer, and its leave"


# Redis away


async def test_while_redis_is_frozen_the_peer_is_told_and_hears_again_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    ann, bob = Heard(b"ann"), Heard(b"bob")
    with RedisServer() as server:
        async with (
            telling(server.url, ann, "a", timeout_s=0.1),
            telling(server.url, bob, "b", timeout_s=5.0) as other,
        ):
            await ann.hears(b=b"bob")
            server.freeze()
            await ann.until(lambda heard: heard.is_lost)
            assert not other._is_away, "it waits for longer"
            server.thaw()
            await ann.hears(b=b"bob")
    assert [record.getMessage() for record in caplog.records] == [
        "what other processes have under way is not known (Redis: no answer within 100 ms); trying on",
        "Redis tells again what other processes have under way",
    ]


async def test_a_redis_that_starts_again_empty_is_told_anew() -> None:
    ann, bob = Heard(b"ann"), Heard(b"bob")
    with RedisServer() as server:
        async with telling(server.url, ann, "a"), telling(server.url, bob, "b"):
            await ann.hears(b=b"bob")
            server.kill()
            await ann.until(lambda heard: heard.is_lost)
            server.start()
            await ann.hears(b=b"bob")
            await bob.hears(a=b"ann")


async def test_it_starts_without_redis_and_finds_it_later(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    ann = Heard(b"ann")
    async with telling(f"redis://127.0.0.1:{port}/0", ann, "a"):
        assert ann.is_lost
        with RedisServer(port=port) as server:
            async with telling(server.url, Heard(b"bob"), "b"):
                await ann.hears(b=b"bob")
            assert len(caplog.records) == 2, "it is not told of each attempt"


async def test_an_end_while_redis_does_not_answer_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(peers, "LAST_CALL_S", 0.05)
    with RedisServer() as server:
        async with telling(server.url, Heard(b"ann"), "a"):
            server.freeze()
    assert "did not take the end of this process" in caplog.text


async def test_an_end_that_meets_a_lost_connection_does_not_wait(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with telling(redis_url, Heard(b"ann"), "a") as it:
        ending = asyncio.create_task(it.__aexit__())
        while it._left is None:  # noqa: ASYNC110 - until it has begun
            await asyncio.sleep(0)
        it._link._lose("cut by the test")
        await ending
        assert it._left.result() is None
        it._answered(b"too late")
    assert "did not take the end" not in caplog.text


async def test_a_call_that_was_lost_is_not_taken_for_an_answer(
    shared_redis: RedisServer, redis_url: str
) -> None:
    ann = Heard(b"ann")
    async with Relay(shared_redis.port) as relay, telling(relay.url, ann, "a", timeout_s=0.1):
        await ann.another_beat()
        relay.stall_answers()
        await ann.until(lambda heard: heard.is_lost)
        beats = ann.beats
        relay.resume()
        await ann.until(lambda heard: not heard.is_lost)
        assert ann.beats == beats + 1


# What else may be in the hash


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"x", b"no time"),
        (b"x", b""),
        (b"x", b"9" * 400 + b" report"),
        (b"no name", b"%d report"),
        (b"\xff", b"%d report"),
        (b"", b"%d report"),
    ],
)
async def test_what_no_process_wrote_is_passed_over_and_removed(
    client: Redis, redis_url: str, field: bytes, value: bytes
) -> None:
    seconds, microseconds = await client.time()
    now_us = seconds * 10**6 + microseconds
    await client.hset(HASH, field, value.replace(b"%d", str(now_us).encode()))
    ann, bob = Heard(b"ann"), Heard(b"bob")
    async with telling(redis_url, ann, "a"), telling(redis_url, bob, "b"):
        await ann.hears(b=b"bob")
        assert sorted(await client.hkeys(HASH)) == ["a", "b"]


async def test_a_key_that_is_no_hash_is_as_no_redis(client: Redis, redis_url: str) -> None:
    await client.set(HASH, "?")
    ann = Heard(b"ann")
    async with telling(redis_url, ann, "a"):
        assert ann.is_lost
        await client.delete(HASH)
        await ann.hears()


async def test_an_acl_user_needs_only_the_commands_that_are_used() -> None:
    rights = "+auth +select +client|setname +eval +evalsha +time +hset +hdel +hgetall +pexpire"
    user = ("--user", "gateway", "on", ">secret", "resetkeys", "~here:*", "-@all", *rights.split())
    ann = Heard(b"ann")
    with RedisServer(*user) as server:
        url = f"redis://gateway:secret@127.0.0.1:{server.port}/0"
        async with telling(url, ann, "a"), telling(url, Heard(b"bob"), "b"):
            await ann.hears(b=b"bob")
