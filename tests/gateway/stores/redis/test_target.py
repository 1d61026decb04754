"""Is Redis reached where the store's URL says?"""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from redis.exceptions import TimeoutError

from gateway import settings
from gateway.stores.redis.target import Target


def target(url: str, **store: Any) -> Target:
    return Target(settings.Store(url=url, **store))


@pytest.mark.parametrize(
    ("url", "address", "login"),
    [
        ("redis://redis", ("redis", 6379), ("", "", 0)),
        ("redis://10.0.0.7:7000/3", ("10.0.0.7", 7000), ("", "", 3)),
        ("redis://:se%40cret@h:1/2", ("h", 1), ("", "se@cret", 2)),
        ("redis://user:p@[::1]:6380/0", ("::1", 6380), ("user", "p", 0)),
    ],
)
async def test_a_url_tells_address_and_login(
    url: str, address: tuple[str, int], login: tuple[str, str, int]
) -> None:
    found = target(url)
    assert await found.address() == address
    assert (found.username, found.password, found.database) == login
    assert found.tls is None
    async with found.client() as client:
        options = client.connection_pool.connection_kwargs
        assert (options["host"], options["port"]) == address
        assert (options["username"] or "", options["password"] or "", options["db"]) == login
        assert options["socket_timeout"] == options["socket_connect_timeout"] == 0.25


async def test_a_socket_of_this_machine_has_a_path() -> None:
    found = target("unix:///run/redis.sock?db=4")
    assert (found.path, found.database) == ("/run/redis.sock", 4)
    async with found.client() as client:
        assert client.connection_pool.connection_kwargs["path"] == "/run/redis.sock"


async def test_tls_checks_the_server_against_the_authority_that_is_named(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    found = target("rediss://h:1/0", ca_file=str(tmp_path / "ca.pem"))
    assert found.tls is not None
    assert found.tls.verify_mode == ssl.CERT_REQUIRED
    assert len(found.tls.get_ca_certs()) == 1
    async with found.client() as client:
        assert client.connection_pool.connection_kwargs["ssl_ca_certs"] == str(tmp_path / "ca.pem")


async def test_sentinels_are_asked_with_no_login_and_the_master_with_its_own() -> None:
    found = target("redis+sentinel://user:pw@s1:26379,s2:26380/mymaster/5", timeout_ms=100)
    assert (found.username, found.password, found.database) == ("user", "pw", 5)
    async with found.client() as client:
        options = client.connection_pool.connection_kwargs
        assert (options["username"], options["password"], options["db"]) == ("user", "pw", 5)
    assert found._sentinel is not None
    places = [sentinel.connection_pool.connection_kwargs for sentinel in found._sentinel.sentinels]
    assert [(place["host"], place["port"]) for place in places] == [("s1", 26379), ("s2", 26380)]
    assert {place["socket_timeout"] for place in places} == {0.1}
    await found.aclose()


async def test_who_does_not_answer_in_time_is_asked_once_and_who_has_hung_up_once_more() -> None:
    asked = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        async with target(url, timeout_ms=50).client() as client:
            with pytest.raises(TimeoutError):
                await client.get("key")
        assert asked == 1


async def test_a_connection_that_was_closed_while_idle_is_made_again(redis_url: str) -> None:
    async with target(redis_url).client() as client, target(redis_url).client() as other:
        await client.set("key", "value")
        await other.client_kill_filter(_type="normal")
        assert await client.get("key") == "value"
