"""The door: which paths exist, who may use them, and how every failure is told."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import settings
from gateway.accounting import Ledger
from gateway.auth import Authenticator
from gateway.errors import (
    Draining,
    GatewayError,
    InternalError,
    MethodNotAllowed,
    ModelNotFound,
    NotFound,
    NoWorker,
)
from gateway.exchange import ClientGone, Exchange
from gateway.fleet import Catalogue, Fleet
from gateway.headers import JSON, Header, of_error, of_quotas, request_id
from gateway.limits import RateLimiter
from gateway.model import Caller, Endpoint, Incoming, Trip
from gateway.pipeline import Corridor
from gateway.underway import UnderWay

log = logging.getLogger(__name__)

NO_SUCH_PATH = (
    "There is no such path here. There are POST /v1/chat/completions and /v1/completions, "
    "and GET /v1/models, /health and /ready."
)


class Completions:
    """POST /v1/completions or /v1/chat/completions: an ASGI application, so that leases span the answer."""

    def __init__(
        self,
        endpoint: Endpoint,
        corridor: Corridor,
        ledger: Ledger,
        rules: settings.Server,
        clock: Callable[[], float],
        under_way: UnderWay,
    ) -> None:
        self.path = endpoint.path
        self._endpoint = endpoint
        self._corridor = corridor
        self._ledger = ledger
        self._rules = rules
        self._clock = clock
        self._under_way = under_way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        trip = Trip(request_id(scope["headers"]), self._endpoint, self._clock())
        exchange = Exchange(
            scope,
            receive,
            send,
            trip,
            max_body_bytes=self._rules.max_body_bytes,
            clock=self._clock,
        )
        self._under_way.add(exchange)
        try:
            await self._walk(scope, exchange, trip)
        except asyncio.CancelledError:
            if not exchange.gone:
                raise  # not ours
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # this is a task
            trip.outcome = exchange.gone
            if exchange.farewell is not None:
                await exchange.fail(exchange.farewell)
        finally:
            exchange.end()
            self._under_way.discard(exchange)
            self._ledger.close(trip)

    async def _walk(self, scope: Scope, exchange: Exchange, trip: Trip) -> None:
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed(f"{self._endpoint.path} takes POST.", "POST")
            await self._corridor.walk(Incoming(trip.id, self._endpoint, scope["headers"]), exchange, trip)
        except GatewayError as error:
            await exchange.fail(error)
        except ClientGone:
            trip.outcome = "client_gone"
        except Exception:
            log.exception("request %s failed by a bug of the gateway", trip.id)
            await exchange.fail(InternalError())


class Page:
    """A GET that is answered at once from what is known.

    render: returns a body, or raises GatewayError. more: further headers, also of errors.
    """

    def __init__(
        self,
        render: Callable[[Scope], object],
        media_type: bytes = JSON[1],
        more: Callable[[Scope], Awaitable[list[Header]]] | None = None,
    ) -> None:
        self._render = render
        self._media_type = media_type
        self._more = more

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        headers: list[Header] = []
        try:
            if scope["method"] not in ("GET", "HEAD"):
                raise MethodNotAllowed(f"{scope['path']} takes GET.", "GET, HEAD")
            headers += await self._more(scope) if self._more else []
            content = self._render(scope)
        except GatewayError as error:
            await _refuse(scope, send, error, began, headers)
        else:
            headers.append((b"content-type", self._media_type))
            await _respond(scope, send, 200, headers, content, began)


async def _refuse(
    scope: Scope, send: Send, error: GatewayError, began: float, headers: Iterable[Header] = ()
) -> None:
    await _respond(scope, send, error.status, [*headers, JSON, *of_error(error)], error.body(), began)


async def _respond(
    scope: Scope, send: Send, status: int, headers: list[Header], content: object, began: float
) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers += [
        (b"x-request-id", request_id(scope["headers"]).encode("ascii")),
        (b"openai-processing-ms", b"%d" % ((time.monotonic() - began) * 1000)),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Models:
    """GET /v1/models and /v1/models/{id}: what this caller may use."""

    def __init__(self, auth: Authenticator, catalogue: Catalogue, limits: RateLimiter) -> None:
        self._auth = auth
        self._catalogue = catalogue
        self._limits = limits

    async def headers(self, scope: Scope) -> list[Header]:
        caller = self._auth.identify(scope["headers"])
        return list(of_quotas(await self._limits.look(caller.tenant)))

    def all(self, scope: Scope) -> object:
        caller = self._auth.identify(scope["headers"])
        cards = [card for card in self._catalogue.cards() if self._may_use(caller, card["id"])]
        return {"object": "list", "data": cards}

    def one(self, scope: Scope) -> object:
        caller = self._auth.identify(scope["headers"])
        name = scope["path_params"]["name"]
        if not self._may_use(caller, name):
            raise ModelNotFound("The model does not exist, or this key may not use it.", param="model")
        return self._catalogue.card(name)

    def _may_use(self, caller: Caller, name: str) -> bool:
        model = self._catalogue.find(name)
        return model is not None and not caller.tenant.models.isdisjoint(("*", name, model.name))


def public_app(
    completions: Iterable[Completions],
    models: Models,
    fleet: Fleet,
    is_draining: Callable[[], bool],
) -> ASGIApp:
    """The application of the public port. Paths that are not named here do not exist."""

    def ready(scope: Scope) -> object:
        if is_draining():
            raise Draining("This gateway is shutting down.", retry_after_s=1)
        if not fleet.is_ready():
            raise NoWorker("No model server is up.", retry_after_s=1)
        return {"status": "ready"}

    pages = _router(
        Route("/v1/models", Page(models.all, more=models.headers)),
        Route("/v1/models/{name:path}", Page(models.one, more=models.headers)),
        Route("/health", Page(_alive)),
        Route("/ready", Page(ready)),
    )
    return Door({of.path.encode("ascii"): of for of in completions}, pages)


def admin_app(metrics: Callable[[], bytes]) -> ASGIApp:
    """The application of the admin port."""
    return _router(
        Route("/metrics", Page(lambda scope: metrics(), b"text/plain; version=0.0.4; charset=utf-8")),
        Route("/health", Page(_alive)),
    )


def _router(*routes: Route) -> Router:
    return Router(routes, redirect_slashes=False, default=_nothing)


def _alive(scope: Scope) -> object:
    return {"status": "alive"}


class Door:
    """Completions by their exact path, as it was sent; other pages by starlette's router."""

    def __init__(self, completions: Mapping[bytes, ASGIApp], pages: ASGIApp) -> None:
        self._completions = completions
        self._pages = pages

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._completions.get(scope["raw_path"], self._pages)(scope, receive, send)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(scope, send, NotFound(NO_SUCH_PATH), time.monotonic())
