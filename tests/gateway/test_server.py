"""Are ports had or refused with a word, are applications served, and do signals begin a drain?"""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import settings
from gateway.accepting import AWAY, IDLE, Loads, Place
from gateway.server import PortTaken, listen, running, until_told_to_stop

TOLD = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}


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


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_begins_the_drain_and_a_second_one_hurries_it(number: signal.Signals) -> None:
    began = asyncio.Event()

    async def drain(hurry: asyncio.Event) -> None:
        assert not hurry.is_set()
        began.set()
        await hurry.wait()

    stopping = asyncio.create_task(until_told_to_stop(drain))
    await asyncio.sleep(0)  # from here on, signals are handled
    os.kill(os.getpid(), number)
    await began.wait()
    assert not stopping.done()
    os.kill(os.getpid(), number)
    await stopping


async def test_a_drain_that_ends_by_itself_needs_no_second_signal_and_gives_the_signals_back() -> None:
    async def drain(hurry: asyncio.Event) -> None:
        return None

    stopping = asyncio.create_task(until_told_to_stop(drain))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


async def test_a_hangup_calls_what_it_should_and_stops_nothing() -> None:
    heard, stop = asyncio.Event(), asyncio.Event()

    async def drain(hurry: asyncio.Event) -> None:
        stop.set()

    stopping = asyncio.create_task(until_told_to_stop(drain, on_hangup=heard.set))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGHUP)
    await heard.wait()
    assert not stop.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


# Signals of one among several processes


@pytest.fixture
def blocked() -> Iterator[None]:
    """Signals to this thread are blocked, as a parent leaves them. Those to the process may meet another."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture
def lifeline(blocked: None) -> Iterator[tuple[int, int]]:
    """The end that a process watches, and the one that its parent holds."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


class Drain:
    """A drain that lasts until it is hurried."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.hurry = asyncio.Event()

    async def __call__(self, hurry: asyncio.Event) -> None:
        self.hurry = hurry
        self.began.set()
        await hurry.wait()


async def until_signals_were_heard() -> None:
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, heard.set)
    signal.raise_signal(signal.SIGUSR1)  # it comes after those that were sent before
    await heard.wait()
    loop.remove_signal_handler(signal.SIGUSR1)


async def test_a_signal_that_was_blocked_before_is_heard(lifeline: tuple[int, int]) -> None:
    signal.raise_signal(signal.SIGTERM)
    drain = Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, lifeline=lifeline[0]))
    await drain.began.wait()
    drain.hurry.set()
    await stopping


async def test_only_the_parents_word_hurries_a_process(lifeline: tuple[int, int]) -> None:
    drain = Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, lifeline=lifeline[0]))
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        signal.raise_signal(number)
        await drain.began.wait()
        await until_signals_were_heard()
    assert not drain.hurry.is_set()
    signal.raise_signal(signal.SIGQUIT)
    await stopping


async def test_a_process_may_be_hurried_from_the_start(lifeline: tuple[int, int]) -> None:
    signal.raise_signal(signal.SIGQUIT)
    drain = Drain()
    await until_told_to_stop(drain, lifeline=lifeline[0])
    assert drain.began.is_set()


async def test_a_process_drains_when_its_parent_is_gone(
    blocked: None, caplog: pytest.LogCaptureFixture
) -> None:
    ours, parents = os.pipe()
    drain = Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, lifeline=ours))
    await until_signals_were_heard()
    assert not drain.began.is_set()
    os.close(parents)
    await drain.began.wait()
    assert caplog.messages == ["the parent process is gone: this one stops"]
    drain.hurry.set()
    await stopping
    os.close(ours)


async def test_late_signals_do_not_cut_short_the_end_of_a_process(lifeline: tuple[int, int]) -> None:
    signal.raise_signal(signal.SIGQUIT)
    await until_told_to_stop(Drain(), lifeline=lifeline[0])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.raise_signal(number)  # would end this test, and all others
    await until_signals_were_heard()
