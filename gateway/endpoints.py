"""The door: which paths exist, who may use them, and how every failure is told."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
from gateway.headers import JSON, Header, of_error, request_id
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
            await self._serve(scope, exchange, trip)
        finally:
            exchange.end()
            self._under_way.discard(exchange)
            self._ledger.close(trip)

    async def _serve(self, scope: Scope, exchange: Exchange, trip: Trip) -> None:
        try:
            await self._walk(scope, exchange, trip)
        except asyncio.CancelledError:
            if not exchange.gone:
                raise  # not ours
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # this is a task
            trip.outcome = exchange.gone
            if exchange.farewell is not None:
                await exchange.fail(exchange.farewell)

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
    """A GET that is answered at once from what is known. `render` returns a body, or raises GatewayError."""

    def __init__(self, render: Callable[[Scope], object], media_type: bytes = JSON[1]) -> None:
        self._render = render
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] not in ("GET", "HEAD"):
                raise MethodNotAllowed(f"{scope['path']} takes GET.", "GET, HEAD")
            content = self._render(scope)
        except GatewayError as error:
            await _refuse(scope, send, error)
        else:
            await _respond(scope, send, 200, [(b"content-type", self._media_type)], content)


async def _refuse(scope: Scope, send: Send, error: GatewayError) -> None:
    await _respond(scope, send, error.status, [JSON, *of_error(error)], error.body())


async def _respond(scope: Scope, send: Send, status: int, headers: list[Header], content: object) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers.append((b"x-request-id", request_id(scope["headers"]).encode("ascii")))
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def public_app(
    completions: Iterable[Completions],
    auth: Authenticator,
    catalogue: Catalogue,
    fleet: Fleet,
    is_draining: Callable[[], bool],
) -> ASGIApp:
    """The application of the public port. Paths that are not named here do not exist."""

    def may_use(caller: Caller, card: dict[str, Any]) -> bool:
        names = caller.tenant.models
        model = catalogue.find(card["id"])
        return "*" in names or card["id"] in names or (model is not None and model.name in names)

    def models(scope: Scope) -> object:
        caller = auth.identify(scope["headers"])
        return {"object": "list", "data": [card for card in catalogue.cards() if may_use(caller, card)]}

    def model(scope: Scope) -> object:
        caller = auth.identify(scope["headers"])
        name = scope["path_params"]["name"]
        if catalogue.find(name) is not None and may_use(caller, card := catalogue.card(name)):
            return card
        raise ModelNotFound("The model does not exist, or this key may not use it.", param="model")

    def ready(scope: Scope) -> object:
        if is_draining():
            raise Draining("This gateway is shutting down.", retry_after_s=1)
        if not fleet.is_ready():
            raise NoWorker("No model server is up.", retry_after_s=1)
        return {"status": "ready"}

    pages = Router(
        [
            Route("/v1/models", Page(models)),
            Route("/v1/models/{name:path}", Page(model)),
            Route("/health", Page(lambda scope: {"status": "alive"})),
            Route("/ready", Page(ready)),
        ],
        redirect_slashes=False,
        default=_nothing,
    )
    return Door({of.path.encode("ascii"): of for of in completions}, pages)


def admin_app(metrics: Callable[[], bytes]) -> ASGIApp:
    """The application of the admin port."""
    return Router(
        [
            Route("/metrics", Page(lambda scope: metrics(), b"text/plain; version=0.0.4; charset=utf-8")),
            Route("/health", Page(lambda scope: {"status": "alive"})),
        ],
        redirect_slashes=False,
        default=_nothing,
    )


class Door:
    """Completions by their exact path, as it was sent; other pages by starlette's router."""

    def __init__(self, completions: Mapping[bytes, ASGIApp], pages: ASGIApp) -> None:
        self._completions = completions
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._completions.get(scope["raw_path"], self._pages)(scope, receive, send)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(scope, send, NotFound(NO_SUCH_PATH))
