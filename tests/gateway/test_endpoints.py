"""Which paths exist, who may see what there, and is every end of a request told, counted and let go?"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from starlette.routing import Route
from starlette.types import Message

from gateway import settings
from gateway.accounting import Ledger
from gateway.auth import Authenticator
from gateway.endpoints import Completions, Models, public_app
from gateway.errors import BadRequest, Draining, Unauthorized
from gateway.exchange import ClientGone, Exchange, Line
from gateway.fleet import Catalogue, Fleet, Member
from gateway.fleet.catalogue import Card
from gateway.limits import RateLimiter
from gateway.model import Caller, Endpoint, Fields, Incoming, Model, Tenant, Trip
from gateway.openapi import public_document
from gateway.pages import Page
from gateway.pipeline import Corridor
from gateway.stores.memory import MemoryStore
from gateway.underway import UnderWay
from tests.conftest import KEY
from tests.gateway.test_asgi import Asgi, part
from tests.gateway.test_exchange import FakeLine
from tests.gateway.test_model import SALT, Clock, caller
from tests.gateway.visiting import Seen, visit

BEARER = (b"authorization", b"Bearer " + KEY.encode())
Walk = Callable[[Incoming, Exchange, Trip], Awaitable[None]]


class FakeAuthenticator:
    """Knows one key, at once or only after a look elsewhere; notes what it is asked."""

    def __init__(self, tenant: Tenant, *, at_once: bool = True) -> None:
        self.asked: list[str] = []
        self._caller = Caller(tenant, "acme-1", SALT)
        self._at_once = at_once

    def recognise(self, fields: Fields) -> Caller | None:
        self.asked.append("recognise")
        return self._caller if self._at_once and self._knows(fields) else None

    async def identify(self, fields: Fields) -> Caller:
        self.asked.append("identify")
        if not self._knows(fields):
            raise Unauthorized
        return self._caller

    def _knows(self, fields: Fields) -> bool:
        name, value = BEARER
        return fields.get(name) == value


class Building:
    """The public application, with stand-ins for completions that say their own path."""

    def __init__(self, tenant: Tenant | None = None, *, at_once: bool = True) -> None:
        self.auth = FakeAuthenticator(tenant or Tenant("acme"), at_once=at_once)
        self.catalogue = Catalogue({Model("small"): ["gpt-4o"], Model("org/large"): []})
        self.member = Member("w0", "small", 4)
        self.is_draining = False
        self.served: list[str] = []
        self.app = public_app(
            [cast(Completions, Marker(endpoint, self.served)) for endpoint in Endpoint],
            Models(cast(Authenticator, self.auth), self.catalogue, RateLimiter(MemoryStore())),
            Fleet(settings.Fleet(), [self.member]),
            lambda: self.is_draining,
        )

    async def get(self, path: str, *headers: tuple[bytes, bytes], method: str = "GET") -> Seen:
        return await visit(self.app, path, *headers, method=method)


class Marker:
    """Takes the place of completions; notes that it was reached."""

    def __init__(self, endpoint: Endpoint, served: list[str]) -> None:
        self.path = endpoint.path
        self.served = served

    async def __call__(self, *_: object) -> None:
        self.served.append(self.path)

    async def serve(self, line: Line) -> None:
        """Not through ASGI."""


# Pages


async def test_health_needs_no_key_and_no_worker() -> None:
    page = await Building().get("/health")
    assert (page.status, page.json()) == (200, {"status": "alive"})


async def test_ready_means_that_a_worker_is_up_and_no_drain_has_begun() -> None:
    building = Building()
    page = await building.get("/ready")
    assert (page.status, page.code, page.headers["retry-after"]) == (503, "no_worker", "1")
    building.member.up = True
    page = await building.get("/ready")
    assert (page.status, page.json()) == (200, {"status": "ready"})
    building.is_draining = True
    page = await building.get("/ready")
    assert (page.status, page.code, page.headers["retry-after"]) == (503, "draining", "1")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/small", "/v1/models/nope"])
async def test_models_are_for_callers_with_a_key(path: str) -> None:
    page = await Building().get(path)
    assert (page.status, page.code) == (401, "invalid_api_key")
    assert page.headers["www-authenticate"] == "Bearer"


async def test_models_are_listed_under_all_their_names() -> None:
    page = await Building().get("/v1/models", BEARER)
    assert page.status == 200
    listing = page.json()
    assert listing["object"] == "list"
    assert [card["id"] for card in listing["data"]] == ["small", "org/large", "gpt-4o"]


@pytest.mark.parametrize(
    ("allowed", "listed"),
    [
        ("*", ["small", "org/large", "gpt-4o"]),
        ("small", ["small", "gpt-4o"]),
        ("gpt-4o", ["gpt-4o"]),
        ("org/large", ["org/large"]),
    ],
)
async def test_a_tenant_sees_the_models_that_it_may_use(allowed: str, listed: list[str]) -> None:
    building = Building(Tenant("acme", frozenset({allowed})))
    page = await building.get("/v1/models", BEARER)
    assert [card["id"] for card in page.json()["data"]] == listed
    for name in ("small", "org/large", "gpt-4o"):
        page = await building.get(f"/v1/models/{name}", BEARER)
        assert page.status == (200 if name in listed else 404)


async def test_one_model_is_shown_also_if_its_name_has_a_slash() -> None:
    building = Building()
    building.catalogue.report("w0", [Card("org/large", created=5, owned_by="acme", max_model_len=4096)])
    page = await building.get("/v1/models/org/large", BEARER)
    assert page.json() == {
        "id": "org/large",
        "object": "model",
        "created": 5,
        "owned_by": "acme",
        "max_model_len": 4096,
    }


async def test_an_unknown_model_and_a_forbidden_one_cannot_be_told_apart() -> None:
    building = Building(Tenant("acme", frozenset({"small"})))
    unknown, forbidden = [await building.get(f"/v1/models/{name}", BEARER) for name in ("nope", "org/large")]
    assert (unknown.status, unknown.code) == (404, "model_not_found")
    assert unknown.text == forbidden.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/v1/models/small"])
async def test_pages_are_only_to_be_read(path: str, method: str) -> None:
    page = await Building().get(path, BEARER, method=method)
    assert (page.status, page.code, page.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD")


async def test_a_page_may_be_asked_for_its_head() -> None:
    assert (await Building().get("/health", method="HEAD")).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/health/",
        "/v1/embeddings",
        "/v1/completions/",
        "/v1/chat/completions/",
        "//v1/completions",
        "/V1/completions",
        "/v1/chat/completions/x",
        "/v1/load_lora_adapter",
        "/metrics",
        "/docs",
        "/tokenize",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_there_is_nothing_else(path: str, method: str) -> None:
    building = Building()
    page = await building.get(path, method=method)
    assert (page.status, page.code) == (404, "not_found")
    assert building.served == []


@pytest.mark.parametrize("endpoint", Endpoint)
async def test_completions_have_their_exact_path(endpoint: Endpoint) -> None:
    building = Building()
    assert building.app.direct.keys() == {of.path.encode() for of in Endpoint}
    asgi = Asgi(path=endpoint.path, raw_path=endpoint.path.encode())
    await building.app(asgi.scope, asgi.receive, asgi.send)
    assert building.served == [endpoint.path]


async def test_an_escaped_path_is_another_path() -> None:
    building = Building()
    asgi = Asgi(path="/v1/completions", raw_path=b"/v1/%63ompletions")
    await building.app(asgi.scope, asgi.receive, asgi.send)
    assert (building.served, Seen(asgi).code) == ([], "not_found")


@pytest.mark.parametrize("path", ["/health", "/nothing", "/v1/models"])
async def test_every_page_has_a_request_id(path: str) -> None:
    page = await Building().get(path, (b"x-request-id", b"mine"))
    assert page.headers["x-request-id"] == "mine"
    assert len((await Building().get(path)).headers["x-request-id"]) == 32


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/small", "/v1/models/unknown"])
async def test_the_models_pages_tell_the_limits_of_their_caller(path: str) -> None:
    page = await Building(Tenant("acme", requests_per_minute=7)).get(path, BEARER)
    assert page.headers["x-ratelimit-remaining-requests"] == "7"
    assert "x-ratelimit-limit-tokens" not in page.headers
    assert page.headers["openai-processing-ms"].isdigit()


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/small", "/v1/models/unknown"])
@pytest.mark.parametrize(("at_once", "asked"), [(True, ["recognise"]), (False, ["recognise", "identify"])])
async def test_a_caller_is_identified_once_and_without_waiting_where_that_can_be(
    path: str, at_once: bool, asked: list[str]
) -> None:
    building = Building(at_once=at_once)
    assert (await building.get(path, BEARER)).status == (404 if path.endswith("unknown") else 200)
    assert building.auth.asked == asked


def test_the_public_ports_document_has_every_path_and_method_and_no_other() -> None:
    door = Building().app
    served = {(path.decode(), "post") for path in door.completions}
    for route in door.pages.routes:
        assert isinstance(route, Route)
        assert isinstance(route.app, Page)
        served |= {(route.path.replace(":path", ""), method.lower()) for method in route.app.shows}
    paths = public_document()["paths"]
    assert served == {(path, method) for path, methods in paths.items() for method in methods}


# Completions


class Desk:
    """Completions with a corridor that does as a test says."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.lines: list[dict[str, Any]] = []
        self.clock = Clock()
        self.under_way = UnderWay(self.clock, stall_s=60)
        self.app = Completions(
            Endpoint.CHAT,
            cast(Corridor, self),
            Ledger(self.clock, self.lines.append),
            settings.Server(max_body_bytes=1024),
            self.clock,
            self.under_way,
        )

    async def serve(self, *messages: Message, **scope: Any) -> Asgi:
        asgi = Asgi(*(messages or (part(b"{}"),)), **scope)
        await self.app(asgi.scope, asgi.receive, asgi.send)
        assert len(self.under_way) == 0
        return asgi

    def outcome(self) -> tuple[int, str]:
        """Of the only request so far."""
        [line] = self.lines
        return line["status"], line["outcome"]


def told(asgi: Asgi) -> tuple[int, dict[bytes, bytes], bytes]:
    """The answer that was given, whole: status, headers, body."""
    head, body = asgi.sent
    assert not body["more_body"]
    return head["status"], dict(head["headers"]), body["body"]


def raising(error: BaseException) -> Walk:
    async def walk(incoming: Incoming, exchange: Exchange, trip: Trip) -> None:
        raise error

    return walk


async def test_a_request_is_brought_to_the_corridor_and_counted_at_its_end() -> None:
    async def walk(incoming: Incoming, exchange: Exchange, trip: Trip) -> None:
        assert (incoming.id, incoming.endpoint, trip.id) == ("mine", Endpoint.CHAT, "mine")
        assert len(desk.under_way) == 1
        trip.caller, trip.outcome = caller(), "ok"
        body = await exchange.body()
        await exchange.start(200, [], len(body))
        await exchange.finish(body)

    desk = Desk(walk)
    asgi = await desk.serve(headers=[(b"content-type", b"application/json"), (b"x-request-id", b"mine")])
    status, _, body = told(asgi)
    assert (status, body) == (200, b"{}")
    assert desk.outcome() == (200, "ok")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_completions_take_post(method: str) -> None:
    desk = Desk(raising(AssertionError("not reached")))
    status, headers, body = told(await desk.serve(method=method))
    assert (status, json.loads(body)["error"]["code"]) == (405, "method_not_allowed")
    assert headers[b"allow"] == b"POST"
    assert desk.outcome() == (405, "method_not_allowed")


async def test_a_request_is_served_the_same_without_asgi() -> None:
    async def walk(incoming: Incoming, exchange: Exchange, trip: Trip) -> None:
        assert (incoming.fields, len(desk.under_way)) == (line.fields, 1)
        trip.outcome = "ok"
        await exchange.reply(200, [], await exchange.body())

    desk = Desk(walk)
    line = FakeLine(b"{}")
    await desk.app.serve(line)
    assert line.answer()[::2] == (200, b"{}")
    assert len(desk.under_way) == 0
    assert desk.outcome() == (200, "ok")


async def test_an_error_of_a_room_is_told() -> None:
    desk = Desk(raising(BadRequest("No.", param="n")))
    status, _, body = told(await desk.serve())
    assert (status, json.loads(body)["error"]["message"]) == (400, "No.")
    assert desk.outcome() == (400, "invalid_value")


async def test_a_bug_is_told_without_its_text_and_logged_with_it(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(raising(ZeroDivisionError("secret")))
    status, _, body = told(await desk.serve())
    assert (status, json.loads(body)["error"]["code"]) == (500, "internal_error")
    assert b"secret" not in body
    [record] = caplog.records
    assert record.getMessage().startswith("request ")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    assert desk.outcome() == (500, "internal_error")


async def test_a_caller_who_leaves_during_the_upload_is_counted_and_told_nothing() -> None:
    desk = Desk(raising(ClientGone()))
    asgi = await desk.serve()
    assert asgi.sent == []
    assert desk.outcome() == (0, "client_gone")


async def waiting(incoming: Incoming, exchange: Exchange, trip: Trip) -> None:
    await exchange.body()
    await asyncio.Event().wait()


async def test_a_caller_who_leaves_later_is_counted_and_the_task_goes_on() -> None:
    desk = Desk(waiting)
    asgi = Asgi(part(b"{}"))

    async def serve() -> int:
        await desk.app(asgi.scope, asgi.receive, asgi.send)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    serving = asyncio.create_task(serve())
    while asgi.connection.on_lost is None:  # noqa: ASYNC110 - each pass of the loop brings it further
        await asyncio.sleep(0)
    asgi.connection.on_lost()
    assert await serving == 0
    assert desk.outcome() == (0, "client_gone")
    assert asgi.sent == []


async def test_a_caller_who_is_sent_away_is_told_why() -> None:
    desk = Desk(waiting)
    asgi = Asgi(part(b"{}"))
    serving = asyncio.create_task(desk.app(asgi.scope, asgi.receive, asgi.send))
    while asgi.connection.on_lost is None:  # noqa: ASYNC110 - each pass of the loop brings it further
        await asyncio.sleep(0)
    desk.under_way.send_away(Draining("Bye.", retry_after_s=1))
    await serving
    status, _, body = told(asgi)
    assert (status, json.loads(body)["error"]["message"]) == (503, "Bye.")
    assert desk.outcome() == (503, "draining")


async def test_a_cancellation_from_elsewhere_passes_through_and_nothing_stays_behind() -> None:
    desk = Desk(waiting)
    asgi = Asgi(part(b"{}"))
    serving = asyncio.create_task(desk.app(asgi.scope, asgi.receive, asgi.send))
    while asgi.connection.on_lost is None:  # noqa: ASYNC110 - each pass of the loop brings it further
        await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (len(desk.under_way), len(desk.lines)) == (0, 1)
    assert cast(Any, asgi.connection).on_lost is None
