"""The door: which paths exist, who may use them, and how every failure is told."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from gateway import settings
from gateway.accounting import Ledger
from gateway.asgi import AsgiLine
from gateway.auth import Authenticator
from gateway.errors import (
    Draining,
    GatewayError,
    InternalError,
    MethodNotAllowed,
    ModelNotFound,
    NoWorker,
)
from gateway.exchange import ClientGone, Exchange, Line
from gateway.fleet import Catalogue, Fleet
from gateway.headers import of_quotas, request_id
from gateway.limits import RateLimiter
from gateway.model import Caller, Endpoint, Incoming, Trip
from gateway.pages import Page, Reply, Visit, alive, router
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
        line = AsgiLine(scope, receive, send)
        if scope["method"] == "POST":
            await self.serve(line)
        else:
            await self.serve(line, MethodNotAllowed(f"{self.path} takes POST.", "POST"))

    async def serve(self, line: Line, refusal: GatewayError | None = None) -> None:
        """Serve one request. refusal: what it is told instead."""
        trip = Trip(request_id(line.fields), self._endpoint, self._clock())
        exchange = Exchange(line, trip, max_body_bytes=self._rules.max_body_bytes, clock=self._clock)
        self._under_way.add(exchange)
        try:
            await self._walk(line, exchange, trip, refusal)
        except asyncio.CancelledError:
            if not exchange.gone:
                raise  # not ours
            line.task.uncancel()
            trip.outcome = exchange.gone
            if exchange.farewell is not None:
                await exchange.fail(exchange.farewell)
        finally:
            exchange.end()
            self._under_way.discard(exchange)
            self._ledger.close(trip)

    async def _walk(self, line: Line, exchange: Exchange, trip: Trip, refusal: GatewayError | None) -> None:
        try:
            if refusal is not None:
                raise refusal
            await self._corridor.walk(Incoming(trip.id, self._endpoint, line.fields), exchange, trip)
        except GatewayError as error:
            await exchange.fail(error)
        except ClientGone:
            trip.outcome = "client_gone"
        except Exception:
            log.exception("request %s failed by a bug of the gateway", trip.id)
            await exchange.fail(InternalError())


class Models:
    """GET /v1/models and /v1/models/{id}: what this caller may use."""

    def __init__(self, auth: Authenticator, catalogue: Catalogue, limits: RateLimiter) -> None:
        self._auth = auth
        self._catalogue = catalogue
        self._limits = limits

    async def all(self, visit: Visit) -> Reply:
        caller = await self._caller(visit)
        cards = [card for card in self._catalogue.cards() if self._may_use(caller, card["id"])]
        return Reply({"object": "list", "data": cards})

    async def one(self, visit: Visit) -> Reply:
        caller = await self._caller(visit)
        name = visit.scope["path_params"]["name"]
        if not self._may_use(caller, name):
            raise ModelNotFound("The model does not exist, or this key may not use it.", param="model")
        return Reply(self._catalogue.card(name))

    async def _caller(self, visit: Visit) -> Caller:
        """Who asks; from then on the answer tells of its limits, also if it is an error."""
        caller = self._auth.recognise(visit.fields) or await self._auth.identify(visit.fields)
        visit.headers += of_quotas(await self._limits.look(caller.tenant))
        return caller

    def _may_use(self, caller: Caller, name: str) -> bool:
        model = self._catalogue.find(name)
        return model is not None and not caller.tenant.models.isdisjoint(("*", name, model.name))


def public_app(
    completions: Iterable[Completions],
    models: Models,
    fleet: Fleet,
    is_draining: Callable[[], bool],
) -> "Door":
    """The application of the public port. Paths that are not named here do not exist."""

    async def ready(visit: Visit) -> Reply:
        if is_draining():
            raise Draining("This gateway is shutting down.", retry_after_s=1)
        if not fleet.is_ready():
            raise NoWorker("No model server is up.", retry_after_s=1)
        return Reply({"status": "ready"})

    pages = router(
        Route("/v1/models", Page(GET=models.all)),
        Route("/v1/models/{name:path}", Page(GET=models.one)),
        Route("/health", Page(GET=alive)),
        Route("/ready", Page(GET=ready)),
        otherwise=NO_SUCH_PATH,
    )
    return Door({of.path.encode("ascii"): of for of in completions}, pages)


class Door:
    """Completions by their exact path, as it was sent; other pages by starlette's router."""

    def __init__(self, completions: Mapping[bytes, Completions], pages: Router) -> None:
        self.completions = completions
        self.pages = pages

    @property
    def direct(self) -> Mapping[bytes, Callable[[Line], Coroutine[Any, Any, None]]]:
        """Who serves completions without ASGI, by path."""
        return {path: of.serve for path, of in self.completions.items()}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self.completions.get(scope["raw_path"], self.pages)(scope, receive, send)
