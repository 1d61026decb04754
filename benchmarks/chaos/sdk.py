"""Callers with the official SDK, as applications call: its connections are kept, its retries are on."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2  # the SDK's own, whose errors come through while a stream is read
import openai
from openai import AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient

from benchmarks.chaos.calls import GAVE_UP, LEFT, Call, Wish
from benchmarks.chaos.raw import PATIENCE_S

RETRIES = 2
ID = "x-request-id"


class Attempts:
    """Gives each request of a call an id of its own, which the SDK would not."""

    def __init__(self) -> None:
        self._made: dict[str, list[str]] = {}

    @asynccontextmanager
    async def of(self, wish: Wish) -> AsyncIterator[list[str]]:
        made: list[str] = []
        self._made[wish.id] = made
        try:
            yield made
        finally:
            del self._made[wish.id]

    async def name(self, request: Any) -> None:
        """Is called before a request is sent."""
        made = self._made[request.headers[ID].partition(".")[0]]
        made.append(f"{request.headers[ID].partition('.')[0]}.{len(made)}")
        request.headers[ID] = made[-1]


class SdkCaller:
    """`async with`. One client for each tenant and replica, as applications have."""

    def __init__(self, keys: Mapping[str, str], ports: Mapping[int, int]) -> None:
        """keys: by tenant. ports: by replica."""
        self._attempts = Attempts()
        self._clients = {
            (tenant, replica): AsyncOpenAI(
                base_url=f"http://127.0.0.1:{port}/v1",
                api_key=key,
                max_retries=RETRIES,
                http_client=DefaultAsyncHttpxClient(
                    event_hooks={"request": [self._attempts.name]}, trust_env=False, timeout=PATIENCE_S
                ),
            )
            for tenant, key in keys.items()
            for replica, port in ports.items()
        }

    async def __aenter__(self) -> "SdkCaller":
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()

    async def ask(self, wish: Wish, replica: int) -> Call:
        """Make one call, to whatever end it comes."""
        call = Call(wish, "sdk", replica, time.time())
        limit_s = wish.leaves_after_s
        async with self._attempts.of(wish) as call.attempts:
            try:
                async with asyncio.timeout(PATIENCE_S if limit_s is None else limit_s):
                    await self._make(call, self._clients[wish.tenant, replica])
            except TimeoutError:
                call.broke = GAVE_UP if limit_s is None else LEFT
            except openai.APIStatusError as error:
                call.status, call.error = error.status_code, _object(error.body)
                _note(call, error.response.headers)
            except openai.APIConnectionError as error:
                call.broke = _named(error.__cause__)
            except openai.APIError as error:  # in a stream
                call.error = _object(error.body)
            except httpx2.HTTPError as error:
                call.broke = _named(error)
        call.ended_at = time.time()
        return call

    async def _make(self, call: Call, client: AsyncOpenAI) -> None:
        wish = call.wish
        endpoint: Any = client.chat.completions if wish.chat else client.completions
        raw = await endpoint.with_raw_response.create(**wish.body(), extra_headers={ID: wish.id})
        call.status = raw.status_code
        _note(call, raw.headers)
        if not wish.stream:
            call.body, call.done = raw.content, True
            return
        stream = cast(AsyncStream[Any], raw.parse())
        try:
            await self._read(call, stream)
        finally:
            await stream.close()

    async def _read(self, call: Call, stream: AsyncStream[Any]) -> None:
        tokens = 0
        async for chunk in stream:
            call.usages += chunk.usage is not None
            for choice in chunk.choices:
                if text := (choice.delta.content if call.wish.chat else choice.text):
                    call.first_at = call.first_at or time.time()
                    call.text += text
                    tokens += 1
                call.finish_reason = choice.finish_reason or call.finish_reason
            if call.wish.leaves_after_tokens is not None and tokens >= call.wish.leaves_after_tokens:
                call.broke = LEFT
                return
            await asyncio.sleep(call.wish.pause_s)


def _named(error: BaseException | None) -> str:
    return f"refused: {error}" if "All connection attempts failed" in str(error) else repr(error)


def _note(call: Call, headers: Mapping[str, str]) -> None:
    call.answered_id = headers.get(ID, "")
    call.degraded = headers.get("x-gateway-degraded", "")
    call.worker = headers.get("x-gateway-worker", "")


def _object(body: object) -> dict[str, Any] | None:
    """The SDK gives the error object without what is around it."""
    return cast(dict[str, Any], body) if isinstance(body, dict) else None
