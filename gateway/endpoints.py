"""The door: which paths exist, who may use them, and how every failure is told."""

import asyncio
import logging
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
    NoWorker,
)
from gateway.exchange import ClientGone, Exchange
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
        headers = visit.scope["headers"]
        caller = self._auth.recognise(headers) or await self._auth.identify(headers)
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

    def __init__(self, completions: Mapping[bytes, ASGIApp], pages: Router) -> None:
        self.completions = completions
        self.pages = pages

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self.completions.get(scope["raw_path"], self.pages)(scope, receive, send)
