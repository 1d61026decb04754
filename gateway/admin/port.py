"""The admin port: which paths does it have, and which of them need the admin key?"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.admin.access import AdminKey
from gateway.admin.operations import Operation, Operations, routes
from gateway.errors import GatewayError
from gateway.pages import Page, Reply, Show, Visit, alive, refuse, router

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
NO_SUCH_PATH = (
    "There is no such path here. There are GET /metrics, /health and /openapi.json, which describes the "
    "admin API, and /openapi/public.json, which describes the public port."
)


class Resource(Protocol):
    """A kind of thing: keys, tenants, workers."""

    def operations(self) -> Operations: ...


def admin_app(
    metrics: Callable[[], Awaitable[bytes]], key: AdminKey, resources: Iterable[Resource]
) -> "AdminPort":
    """The application of the admin port."""
    table = [operation for resource in resources for operation in resource.operations()]

    async def measured(visit: Visit) -> Reply:
        return Reply(await metrics(), media_type=METRICS_TYPE)

    pages = router(
        Route("/metrics", Page(GET=measured)),
        Route("/health", Page(GET=alive)),
        Route("/openapi.json", Page(GET=_telling(lambda: _of_admin_port(table)))),
        Route("/openapi/public.json", Page(GET=_telling(_of_public_port))),
        *routes(table),
        otherwise=NO_SUCH_PATH,
    )
    return AdminPort(key, pages)


# What describes the ports is loaded when somebody asks for it: hardly ever, and never for a start.


def _of_admin_port(operations: Sequence[Operation[Any, Any]]) -> object:
    from gateway.admin.description import admin_document

    return admin_document(operations)


def _of_public_port() -> object:
    from gateway.openapi import public_document

    return public_document()


def _telling(content: Callable[[], object]) -> Show:
    async def show(visit: Visit) -> Reply:
        return Reply(content())

    return show


class AdminPort:
    """Asks for the key before anything below /admin, and keeps what is said there out of caches."""

    def __init__(self, key: AdminKey, pages: Router) -> None:
        self.pages = pages
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pages: ASGIApp = self.pages
        if not f"{scope['path']}/".startswith("/admin/"):
            await pages(scope, receive, send)
            return

        async def send_uncached(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        try:
            self._key.check(scope["headers"])
        except GatewayError as error:
            await refuse(Visit(scope, receive), send_uncached, error)
        else:
            await pages(scope, receive, send_uncached)
