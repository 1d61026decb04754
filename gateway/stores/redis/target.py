"""Where is Redis? The store's URL → redis-py's client, and the way for a connection of our own."""

import re
import ssl
from typing import Any

from redis.asyncio import Redis, Sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError

from gateway import settings

_SENTINEL = re.compile(r"(rediss?)\+sentinel://(.*@)?([^/@]+)/([^/]+)(/\d*)?")


class Target:
    """One Redis, or the master that Sentinels name."""

    def __init__(self, store: settings.Store) -> None:
        self._timeout_s = store.timeout_ms / 1000
        self._sentinel: Sentinel | None = None
        self._service = ""
        url = store.url
        if found := _SENTINEL.fullmatch(url):
            scheme, credentials, places, self._service, database = found.groups("")
            hosts = [(place.rpartition(":")[0], int(place.rpartition(":")[2])) for place in places.split(",")]
            self._sentinel = Sentinel(hosts, sentinel_kwargs=self._patience())  # type: ignore[no-untyped-call]
            url = f"{scheme}://{credentials}{places.partition(',')[0]}{database}"
        options: dict[str, Any] = dict(parse_url(url))
        self.username: str = options.get("username") or ""
        self.password: str = options.get("password") or ""
        self.database: int = options.get("db", 0)
        self.path: str = options.get("path", "")
        self._host = options.get("host", "localhost")
        self._port = options.get("port", 6379)
        self.tls = (
            ssl.create_default_context(cafile=store.ca_file or None) if url.startswith("rediss:") else None
        )
        self._ca_file = store.ca_file

    async def address(self) -> tuple[str, int]:
        """Host and port of this moment. Raises redis.RedisError if no Sentinel knows the master."""
        if self._sentinel is None:
            return self._host, self._port
        host, port = await self._sentinel.discover_master(self._service)
        return str(host), int(port)

    def client(self, **more: Any) -> Redis:
        """redis-py's client, for what is off the path of requests. `aclose()` it."""
        options = self._patience() | {
            "db": self.database,
            "username": self.username or None,
            "password": self.password or None,
            "decode_responses": True,
        }
        if self.tls:
            options |= {"ssl": True, "ssl_ca_certs": self._ca_file or None}
        options |= more
        if self._sentinel is not None:
            client: Redis = self._sentinel.master_for(self._service, **options)
            return client
        if self.path:
            return Redis(unix_socket_path=self.path, **options)
        return Redis(host=self._host, port=self._port, **options)

    async def aclose(self) -> None:
        if self._sentinel is not None:
            for client in self._sentinel.sentinels:
                await client.aclose()

    def _patience(self) -> dict[str, Any]:
        """One more try where a connection was closed while idle, none where Redis does not answer in time."""
        return {
            "socket_timeout": self._timeout_s,
            "socket_connect_timeout": self._timeout_s,
            "retry": Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
        }
