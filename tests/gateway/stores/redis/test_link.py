"""When Redis is slow, gone, another, or wants a password: does nobody wait long, and does it come back?"""

import asyncio
from pathlib import Path

import pytest
import trustme

from gateway.errors import StoreUnavailable
from gateway.model import Quota, Quotas, Tenant
from tests.gateway.stores.redis.opened import ACME, opened
from tests.ports import free_ports
from tests.redis_server import RedisServer

FULL = Quotas(Quota(1000, 1000, 0.0), Quota(100_000, 100_000, 0.0))
BRIEF_S = 0.1


async def test_a_frozen_redis_holds_up_nobody_beyond_the_timeout_and_undoes_what_it_did_late() -> None:
    with RedisServer() as server:
        async with opened(server.url, timeout_s=BRIEF_S) as store:
            await store.limits.take("before", ACME, 5)
            server.freeze()
            waiting = [asyncio.create_task(store.limits.take(f"r{n}", ACME, 5)) for n in range(50)]
            await asyncio.wait(waiting)
            assert {type(task.exception()) for task in waiting} == {StoreUnavailable}
            with pytest.raises(StoreUnavailable):  # at once: nothing is asked of it now
                store.batches.ask(1, None, ())
            store.limits.settle("before", ACME, 5, None)  # is kept
            server.thaw()
            await store.up.wait()
            assert await store.limits.look(ACME) == FULL
            assert await store.leases() == []
            assert store.reasons == ["no answer within 100 ms"]


async def test_what_redis_comes_to_after_the_timeout_grants_nothing() -> None:
    """Were it granted, it would be undone; but the order of two connections is nobody's promise."""
    with RedisServer() as server:
        async with opened(server.url, timeout_s=BRIEF_S) as store:
            store.batches._undo = lambda step: None  # type: ignore[method-assign]
            server.freeze()
            with pytest.raises(StoreUnavailable):
                await store.limits.take("late", ACME, 5)
            server.thaw()
            await store.up.wait()
            assert await store.limits.look(ACME) == FULL
            assert await store.leases() == []


async def test_a_clock_of_redis_that_leaps_ahead_costs_one_more_call(redis_url: str) -> None:
    async with opened(redis_url) as store:
        await store.limits.look(ACME)
        store.batches._redis_ahead_us -= 3600e6  # as it would seem to us
        before = await store.calls()
        assert (await store.limits.take("r1", ACME, 5)).refused == ""
        assert await store.calls() - before == 2


async def test_a_redis_that_starts_again_empty_is_found() -> None:
    with RedisServer() as server:
        async with opened(server.url) as store:
            await store.limits.take("r1", ACME, 5)
            server.kill()
            await store.down.wait()
            server.start()
            await store.up.wait()
            await store.limits.look(ACME)
            assert await store.leases() == ["r1"], "it still runs"
            assert (await store.limits.take("r2", ACME, 5)).refused == ""


async def test_a_connection_that_is_cut_is_made_again(redis_url: str) -> None:
    async with opened(redis_url) as store:
        await store.limits.take("r1", ACME, 5)
        await store.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]
        await store.down.wait()
        await store.up.wait()
        store.limits.settle("r1", ACME, 5, None)
        assert await store.limits.look(ACME) == FULL


async def test_a_master_that_became_a_replica_is_left_until_it_takes_writes_again() -> None:
    with RedisServer() as other, RedisServer() as server:
        async with opened(server.url) as store:
            await store.client.replicaof("127.0.0.1", other.port)
            with pytest.raises(StoreUnavailable):
                await store.limits.take("r1", ACME, 5)
            assert "READONLY" in store.reasons[0]
            await store.client.replicaof("NO", "ONE")
            await store.up.wait()
            assert (await store.limits.take("r2", ACME, 5)).refused == ""
            assert len(store.reasons) == 1, "it is not up before it has taken a write"


async def test_it_starts_without_redis_and_finds_it_later() -> None:
    (port,) = free_ports(1)
    async with opened(f"redis://127.0.0.1:{port}/0") as store:
        assert not store.limits.is_up
        with RedisServer(port=port):
            await store.up.wait()
            assert (await store.limits.take("r1", ACME, 5)).refused == ""


async def test_what_answers_otherwise_than_redis_is_no_redis() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with opened(f"redis://127.0.0.1:{port}/0") as store:
            assert "no answer of Redis" in store.reasons[0]


async def test_a_password_and_a_database_are_used() -> None:
    with RedisServer("--requirepass", "se@cret") as server:
        url = f"redis://:se%40cret@127.0.0.1:{server.port}/3"
        async with opened(url) as store:
            await store.limits.take("r1", ACME, 5)
            assert await store.leases() == ["r1"]
            assert (await store.client.info("keyspace")).keys() == {"db3"}


async def test_a_wrong_password_is_told_for_the_log() -> None:
    with RedisServer("--requirepass", "secret") as server:
        async with opened(f"redis://:wrong@127.0.0.1:{server.port}/0") as store:
            assert "AUTH" in store.reasons[0]
            assert "WRONGPASS" in store.reasons[0]
            assert "wrong@" not in store.reasons[0]


async def test_an_acl_user_needs_only_the_commands_that_are_used() -> None:
    rights = (
        "+auth +select +client|setname +eval +evalsha +time +get +set +del +pexpire "
        "+zadd +zrem +zcard +zremrangebyscore"
    )
    with RedisServer(
        "--user", "gateway", "on", ">secret", "resetkeys", "~test:*", "-@all", *rights.split()
    ) as server:
        async with opened(f"redis://gateway:secret@127.0.0.1:{server.port}/0") as store:
            assert store.reasons == []
            assert (await store.limits.take("r1", ACME, 5)).refused == ""
            await store.client.aclose()


async def test_redis_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer("--unixsocket", str(path)):
        async with opened(f"unix://{path}?db=2") as store:
            assert (await store.limits.take("r1", ACME, 5)).refused == ""
            assert await store.leases() == ["r1"]


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    return tmp_path


async def test_redis_over_tls(certificates: Path) -> None:
    port, tls_port = free_ports(2)
    files = {"cert": "server.pem", "key": "server.pem", "ca-cert": "ca.pem"}
    options = [f for name, file in files.items() for f in (f"--tls-{name}-file", str(certificates / file))]
    with RedisServer("--tls-port", str(tls_port), "--tls-auth-clients", "no", *options, port=port):
        url = f"rediss://127.0.0.1:{tls_port}/0"
        async with opened(url, ca_file=str(certificates / "ca.pem")) as store:
            assert (await store.limits.take("r1", ACME, 5)).refused == ""
            assert await store.leases() == ["r1"]
        trustme.CA().cert_pem.write_to_path(certificates / "other.pem")
        async with opened(url, ca_file=str(certificates / "other.pem")) as stranger:
            assert "certificate" in stranger.reasons[0].lower()


async def test_the_master_is_asked_of_the_sentinels_and_followed() -> None:
    first, second, sentinel = free_ports(3)
    settings = [
        *("--sentinel", "monitor", "mymaster", "127.0.0.1", str(first), "1"),
        *("--sentinel", "down-after-milliseconds", "mymaster", "500"),
        *("--sentinel", "failover-timeout", "mymaster", "3000"),
    ]
    url = f"redis+sentinel://127.0.0.1:{sentinel}/mymaster/0"
    with (
        RedisServer(port=first) as master,
        RedisServer("--replicaof", "127.0.0.1", str(first), port=second),
        RedisServer(*settings, port=sentinel, sentinel=True),
    ):
        async with opened(url, timeout_s=BRIEF_S * 5) as store:
            await store.up.wait()
            assert (await store.limits.take("r1", Tenant("acme", requests_per_day=10), 5)).refused == ""
            while not await store.client.execute_command("WAIT", 1, 100):  # type: ignore[no-untyped-call]
                pass
            master.kill()
            await store.down.wait()
            await store.up.wait()
            quota = (await store.limits.look(Tenant("acme", requests_per_day=10))).requests
            assert quota is not None
            assert quota.remaining == 9, "the replica knows"
