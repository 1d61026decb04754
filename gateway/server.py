"""Sockets: two uvicorn servers in one loop."""

import asyncio
import math
import os
import socket
from collections.abc import AsyncIterator, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, cast, runtime_checkable

import uvicorn
from starlette.types import ASGIApp

from gateway import settings
from gateway.accepting import Acceptor, Place
from gateway.callers import LAST_WORDS_S, Callers
from gateway.outbox import Outbox
from gateway.protocol import GatewayProtocol, Serve

BACKLOG = 4096  # connections that wait to be accepted: a client's burst opens a thousand at once


@runtime_checkable
class ServesDirectly(Protocol):
    """An application that serves some requests without ASGI."""

    @property
    def direct(self) -> Mapping[bytes, Serve]:
        """By the target that was sent."""
        ...


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves the signals to us: there are two of them, and a drain comes first."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    @property
    def connections(self) -> Collection[GatewayProtocol]:
        return cast("set[GatewayProtocol]", self.server_state.connections)

    def part(self) -> None:
        """From now on each connection ends with the next answer that begins on it, which says so."""
        cast(type[GatewayProtocol], self.config.http).is_parting = True
        for connection in self.connections:
            connection.part()

    def leave(self) -> None:
        """Accept no more: others listen on the same socket."""
        for server in self.servers:
            server.close()


class _AmongSiblings(_Server):
    """One of several processes that listen on the same sockets."""

    def __init__(self, config: uvicorn.Config, place: Place) -> None:
        super().__init__(config)
        self._place = place
        place.states.append(self.server_state)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with acceptors in place of the loop's servers, which accept all there is at once."""
        acceptors = [Acceptor(listener, self._protocol, self._place) for listener in sockets or ()]
        self.servers = acceptors  # type: ignore[assignment]  # uvicorn closes them, and no more
        self._place.tell()
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        kind = self.config.http_protocol_class
        protocol: asyncio.Protocol = kind(config=self.config, server_state=self.server_state, app_state={})  # type: ignore[call-arg]
        return protocol

    async def on_tick(self, counter: int) -> bool:
        self._place.tell()
        return await super().on_tick(counter)


class _Counted(GatewayProtocol):
    """A connection that is part of its process's load."""

    place: Place
    _is_fresh = True  # nothing was asked yet

    def connection_lost(self, exc: Exception | None) -> None:
        self._count()
        super().connection_lost(exc)
        self.place.tell()

    def on_headers_complete(self) -> None:
        self._count()
        super().on_headers_complete()

    def _count(self) -> None:
        if self._is_fresh:
            self._is_fresh = False
            self.place.fresh -= 1


class PortTaken(Exception):
    """A port that the configuration names cannot be had. The message says what to do."""


def listen(name: str, host: str, port: int) -> socket.socket:
    """A bound socket; raises PortTaken. `name`: "port" or "admin_port", the setting that names it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except socket.gaierror:
        setting = name.replace("port", "host")
        raise PortTaken(
            f'server.{setting} = "{host}": no address of this machine. Name one, or "0.0.0.0"'
        ) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortTaken(
            f"server.{name} = {port}: cannot listen on {host}: {reason}. "
            f"Stop what uses it, or choose another {name}"
        ) from None


@asynccontextmanager
async def running(
    apps: Sequence[tuple[ASGIApp, socket.socket]],
    rules: settings.Server,
    place: Place | None = None,
    callers: Callers | None = None,
) -> AsyncIterator[None]:
    """Serve each application on its socket for as long as the context lasts.

    place: of this process, where several listen on the same sockets. callers: is told of the servers.
    """
    servers = [_server(app, rules, place) for app, _ in apps]
    if callers is not None:
        callers.servers += servers
    async with asyncio.TaskGroup() as group:
        serving = [
            group.create_task(server.serve(sockets=[listener]))
            for server, (_, listener) in zip(servers, apps, strict=True)
        ]
        try:
            yield
        finally:
            for server in servers:
                server.should_exit = True
            await asyncio.wait(serving)  # an error inside would have the group cancel them, sockets open


def _server(app: ASGIApp, rules: settings.Server, place: Place | None) -> _Server:
    if place is None:
        return _Server(_config(app, rules, GatewayProtocol))
    return _AmongSiblings(_config(app, rules, _Counted, place=place), place)


def _config(
    app: ASGIApp, rules: settings.Server, protocol: type[GatewayProtocol], **of_all: object
) -> uvicorn.Config:
    attributes = {
        **of_all,
        "head_timeout_s": rules.header_timeout_s,
        "body_timeout_s": rules.body_timeout_s,
        "outbox": Outbox(),
        "direct": app.direct if isinstance(app, ServesDirectly) else {},
    }
    return uvicorn.Config(
        app,
        http=type("Protocol", (protocol,), attributes),
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # what a caller says of itself is not believed
        timeout_keep_alive=math.ceil(rules.keep_alive_s),
        timeout_graceful_shutdown=LAST_WORDS_S,
        backlog=BACKLOG,
    )
