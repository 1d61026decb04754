"""Does TLS to a worker hold, and its failure count as unreachable?"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from gateway.errors import WorkerUnreachable
from tests.fakes import FakeWorker
from tests.gateway.upstream.asking import JSON, PATH, MakeClient, ask, whole


@asynccontextmanager
async def tls_worker(authority: trustme.CA, name: str) -> AsyncIterator[FakeWorker]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    async with FakeWorker(tls=context) as worker:
        yield worker


async def test_tls_works_with_a_trusted_certificate(client_for: MakeClient, authority: trustme.CA) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with tls_worker(authority, "127.0.0.1") as worker:
        client = client_for(worker.url, tls=trusting)
        for _ in range(2):
            assert b"glad" in await ask(client)
        answer = await client.post(PATH, JSON, [b'{"padding":"', memoryview(b"x" * 1_000_000), b'"}'])
        assert b"glad" in await whole(answer)
        assert (client.idle, len(worker.connections)) == (1, 1)


async def test_an_untrusted_certificate_is_unreachable(client_for: MakeClient, authority: trustme.CA) -> None:
    async with tls_worker(authority, "127.0.0.1") as worker:
        with pytest.raises(WorkerUnreachable) as caught:
            await ask(client_for(worker.url))
        assert "certificate verify failed" in caught.value.detail
        assert worker.requests == []


async def test_a_certificate_for_another_name_is_unreachable(
    client_for: MakeClient, authority: trustme.CA
) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with tls_worker(authority, "elsewhere.test") as worker:
        with pytest.raises(WorkerUnreachable):
            await ask(client_for(worker.url, tls=trusting))


async def test_tls_to_a_plain_worker_is_unreachable(client_for: MakeClient) -> None:
    async def answer_in_plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer_in_plain, "127.0.0.1", 0)
    async with server:
        with pytest.raises(WorkerUnreachable):
            await ask(client_for(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
