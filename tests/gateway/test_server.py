"""Are ports had or refused with a word, and are applications served?"""

import asyncio
import signal
import socket

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import settings
from gateway.accepting import AWAY, IDLE, Loads, Place
from gateway.server import PortTaken, listen, running


def saying(text: bytes) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text})

    return app


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{port_of(listener)}/"


# Ports


def test_a_port_that_is_taken_is_refused_with_what_to_do() -> None:
    with listen("admin_port", "127.0.0.1", 0) as taken:
        port = port_of(taken)
        with pytest.raises(PortTaken) as caught:
            listen("admin_port", "127.0.0.1", port)
    assert str(caught.value) == (
        f"server.admin_port = {port}: cannot listen on 127.0.0.1: Address already in use. "
        "Stop what uses it, or choose another admin_port"
    )


@pytest.mark.parametrize(("name", "setting"), [("port", "host"), ("admin_port", "admin_host")])
def test_a_host_that_is_no_address_is_refused_by_the_setting_that_names_it(
    name: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:  # in place of a question to a name server
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_server", unknown)
    with pytest.raises(PortTaken, match=rf'^server\.{setting} = "nowhere": no address of this machine'):
        listen(name, "nowhere", 0)


def test_an_address_of_another_machine_is_refused_likewise() -> None:
    with pytest.raises(PortTaken, match=r"server\.port = 0: cannot listen on 192\.0\.2\.1: "):
        listen("port", "192.0.2.1", 0)


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_a_port_is_had_at_addresses_of_both_families(host: str, family: socket.AddressFamily) -> None:
    with listen("port", host, 0) as listener:
        assert listener.family == family
        assert port_of(listener) > 0


# Serving


async def test_each_application_is_served_on_its_own_socket_as_long_as_the_context_lasts() -> None:
    with listen("port", "127.0.0.1", 0) as public, listen("admin_port", "127.0.0.1", 0) as admin:
        urls = url_of(public), url_of(admin)
        apps = [(saying(b"public"), public), (saying(b"admin"), admin)]
        async with httpx.AsyncClient(trust_env=False) as client:
            async with running(apps, settings.Server()):
                assert [(await client.get(url)).content for url in urls] == [b"public", b"admin"]
            for url in urls:
                with pytest.raises(httpx.ConnectError):
                    await client.get(url)


async def test_an_error_inside_the_context_closes_what_is_open_all_the_same() -> None:
    async def failing(listener: socket.socket) -> None:
        async with running([(saying(b"x"), listener)], settings.Server()):
            writer.write(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
            await reader.readuntil(b"0\r\n\r\n")
            raise ZeroDivisionError

    with listen("port", "127.0.0.1", 0) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        with pytest.raises(ExceptionGroup) as caught:
            await failing(listener)
    assert caught.group_contains(ZeroDivisionError)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_an_answer_says_nothing_of_the_server_and_believes_no_proxy() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await saying(b"x")(scope, receive, send)

    with listen("port", "127.0.0.1", 0) as listener:
        async with (
            running([(app, listener)], settings.Server()),
            httpx.AsyncClient(trust_env=False) as client,
        ):
            forwarded = {"x-forwarded-for": "1.2.3.4", "x-forwarded-proto": "https"}
            answer = await client.get(url_of(listener), headers=forwarded)
    assert "server" not in answer.headers
    [scope] = seen
    assert (scope["client"][0], scope["scheme"]) == ("127.0.0.1", "http")


async def test_serving_leaves_the_signals_alone() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with listen("port", "127.0.0.1", 0) as listener:
        async with running([(saying(b"x"), listener)], settings.Server()):
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.get(url_of(listener))  # by now it serves
            assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
            assert not set(uvicorn.server.HANDLED_SIGNALS) - {signal.SIGTERM, signal.SIGINT}


# Serving as one of several processes


def load_of(loads: Loads) -> float:
    """What the only process has told of itself; AWAY also if it has told nothing."""
    own = Place(loads, 0)
    [told] = own._loads._loads
    return told


async def test_a_process_of_several_serves_and_tells_what_it_has_to_do() -> None:
    go_on = asyncio.Event()
    seen: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(place.load)
        await go_on.wait()
        await saying(b"x")(scope, receive, send)

    loads = Loads(1)
    place = Place(loads, 0)
    with listen("port", "127.0.0.1", 0) as listener:
        async with running([(app, listener)], settings.Server(), place):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            while load_of(loads) != 1:  # noqa: ASYNC110 - a connection that has asked for nothing yet
                await asyncio.sleep(0)
            for _ in range(2):
                go_on.clear()
                writer.write(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
                while not seen:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert seen.pop() == 1
                go_on.set()
                await reader.readuntil(b"0\r\n\r\n")
                while load_of(loads) != IDLE:  # noqa: ASYNC110 - told ten times a second
                    await asyncio.sleep(0)
            writer.close()
            await writer.wait_closed()
            while load_of(loads) != 0:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert load_of(loads) == AWAY


async def test_a_connection_that_asks_for_nothing_is_not_counted_once_it_is_gone() -> None:
    loads = Loads(1)
    with listen("port", "127.0.0.1", 0) as listener:
        async with running([(saying(b"x"), listener)], settings.Server(), Place(loads, 0)):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            while load_of(loads) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
            writer.close()
            await writer.wait_closed()
            while load_of(loads) != 0:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_both_ports_of_a_process_count() -> None:
    place = Place(Loads(1), 0)
    with listen("port", "127.0.0.1", 0) as public, listen("admin_port", "127.0.0.1", 0) as admin:
        apps = [(saying(b"public"), public), (saying(b"admin"), admin)]
        urls = url_of(public), url_of(admin)
        async with running(apps, settings.Server(), place), httpx.AsyncClient(trust_env=False) as client:
            assert [(await client.get(url)).content for url in urls] == [b"public", b"admin"]
            while place.load != 2 * IDLE:  # noqa: ASYNC110 - the answers are out before the requests have ended
                await asyncio.sleep(0)
