"""How is a request answered that needs no worker? At once, and with every failure told."""

import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from gateway.errors import GatewayError, InternalError, MethodNotAllowed, NotFound
from gateway.headers import JSON, Header, by_name, of_error, request_id

log = logging.getLogger(__name__)


class Visit:
    """One request for a page. `headers` leave with the answer, also where that is an error."""

    __slots__ = ("began", "fields", "headers", "id", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.began = time.monotonic()
        self.fields = by_name(scope["headers"])
        self.id = request_id(self.fields)
        self.scope = scope
        self.receive = receive
        self.headers: list[Header] = []


@dataclass(frozen=True, slots=True)
class Reply:
    """What a page shows. content: bytes go as they are, all else as JSON."""

    content: object
    status: int = 200
    media_type: bytes = JSON[1]


Show = Callable[[Visit], Awaitable[Reply]]


class Page:
    """One path, and what it shows by method; a `Show` may raise GatewayError.

    HEAD is as GET: the server leaves the body out.
    """

    def __init__(self, **shows: Show) -> None:
        self.shows = shows
        methods = [*shows, "HEAD"] if "GET" in shows else [*shows]
        self._allow = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit = Visit(scope, receive)
        try:
            reply = await self._show(visit)
        except GatewayError as error:
            await refuse(visit, send, error)
        except Exception:
            log.exception("request %s failed by a bug of the gateway", visit.id)
            await refuse(visit, send, InternalError())
        else:
            visit.headers.append((b"content-type", reply.media_type))
            await _respond(visit, send, reply.status, reply.content)

    async def _show(self, visit: Visit) -> Reply:
        method = visit.scope["method"]
        show = self.shows.get("GET" if method == "HEAD" else method)
        if show is None:
            raise MethodNotAllowed(f"{visit.scope['path']} takes {self._allow}.", self._allow)
        return await show(visit)


def router(*routes: Route, otherwise: str) -> Router:
    """Pages by their exact paths. `otherwise` is the message for all other paths."""

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(Visit(scope, receive), send, NotFound(otherwise))

    return Router(routes, redirect_slashes=False, default=nothing)


async def alive(visit: Visit) -> Reply:
    return Reply({"status": "alive"})


async def refuse(visit: Visit, send: Send, error: GatewayError) -> None:
    visit.headers += [JSON, *of_error(error)]
    await _respond(visit, send, error.status, error.body())


async def _respond(visit: Visit, send: Send, status: int, content: object) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    visit.headers += [
        (b"x-request-id", visit.id.encode("ascii")),
        (b"openai-processing-ms", b"%d" % ((time.monotonic() - visit.began) * 1000)),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": visit.headers})
    await send({"type": "http.response.body", "body": body})
