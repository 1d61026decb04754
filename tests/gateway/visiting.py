"""How do tests ask for a page without a socket?"""

import json
from typing import Any

from starlette.types import ASGIApp, Message

from tests.gateway.test_asgi import Asgi, part


class Seen:
    """What was shown."""

    def __init__(self, asgi: Asgi) -> None:
        head, body = asgi.sent
        self.status: int = head["status"]
        assert len(dict(head["headers"])) == len(head["headers"])
        self.headers = {name.decode(): value.decode() for name, value in head["headers"]}
        self.text: bytes = body["body"]
        assert self.headers["content-length"] == str(len(self.text))
        assert body.get("more_body", False) is False

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return dict(error)

    @property
    def code(self) -> str:
        return str(self.error["code"])


async def visit(
    app: ASGIApp,
    path: str,
    *headers: tuple[bytes, bytes],
    method: str = "GET",
    messages: tuple[Message, ...] = (),
) -> Seen:
    """path: with its query, if any. messages: the parts of the body; none is an empty one."""
    plain, _, query = path.partition("?")
    asgi = Asgi(
        *(messages or (part(b""),)),
        headers=headers,
        method=method,
        path=plain,
        raw_path=plain.encode(),
        query_string=query.encode(),
    )
    await app(asgi.scope, asgi.receive, asgi.send)
    return Seen(asgi)
