"""Does a running gateway take over changes of its file's tenants and keys, and nothing that is broken?"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import KEY, configuration, sha256
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller
from tests.e2e.observed import POLL_S
from tests.e2e.program import Program, program
from tests.e2e.test_admin import ADMIN_KEY
from tests.fakes import FakeWorker, Received, Reply, plain_answer

GET_MODELS = "/v1/models"
OTHER_KEY = "sk-test-globex-0123456789abcdefghijklmnopqrstuvwxyz"
GLOBEX = f"""
[[tenants]]
id = "globex"
[[keys]]
id = "globex-1"
tenant = "globex"
sha256 = "{sha256(OTHER_KEY)}"
"""
IN_FORCE = re.compile(rb"INFO .*gateway\.toml.* in force")
KEPT = re.compile(rb"ERROR .*gateway\.toml.* stays in force")
TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}


class Edited:
    """A gateway that runs, with its file."""

    def __init__(self, running: Program, file: Path) -> None:
        self.running = running
        self.file = file
        self.text = file.read_text()  # as it was at the start

    async def status(self, key: str) -> int:
        return (await self.look(key)).status_code

    async def look(self, key: str = KEY) -> httpx.Response:
        """Costs the tenant nothing. Each time on a connection of its own, so that all processes are asked."""
        return await self._call("GET", GET_MODELS, key)

    async def ask(self, key: str = KEY) -> httpx.Response:
        return await self._call("POST", COMPLETIONS, key, json=QUESTION)

    async def _call(self, method: str, path: str, key: str, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(timeout=30, trust_env=False, verify=False) as client:
            return await client.request(method, self.running.url + path, headers=headers, **more)

    async def become(self, status: int, key: str) -> None:
        """Wait until the key is answered so. Only polling shows it."""
        while await self.status(key) != status:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def said_of_the_file(self, last: re.Pattern[bytes]) -> list[bytes]:
        """The lines of standard error that name it, up to and with this one."""
        assert self.running.process.stderr is not None
        lines: list[bytes] = []
        while not lines or not last.search(lines[-1]):
            line = await self.running.process.stderr.readline()
            assert line, "it has ended"
            lines += [line] if b"gateway.toml" in line else []
        return lines


@asynccontextmanager
async def edited(worker: FakeWorker, place: Path, **sections: Any) -> AsyncIterator[Edited]:
    async with program(configuration(worker, **sections), place) as running:
        yield Edited(running, place / "gateway.toml")


async def test_a_key_that_is_added_opens_and_one_that_is_removed_does_not(tmp_path: Path) -> None:
    async with FakeWorker() as worker, edited(worker, tmp_path) as gateway:
        assert await gateway.status(OTHER_KEY) == 401
        gateway.file.write_text(gateway.text + GLOBEX)
        await gateway.become(200, OTHER_KEY)
        assert (await gateway.ask(KEY)).status_code == (await gateway.ask(OTHER_KEY)).status_code == 200
        gateway.file.write_text(gateway.text)
        await gateway.become(401, OTHER_KEY)
        assert (await gateway.ask(OTHER_KEY)).status_code == 401
        assert (await gateway.ask(KEY)).status_code == 200
        assert await gateway.said_of_the_file(IN_FORCE)


async def test_a_file_that_is_put_in_the_place_of_the_old_one_is_taken_over(tmp_path: Path) -> None:
    async with FakeWorker() as worker, edited(worker, tmp_path) as gateway:
        draft = tmp_path / "draft.toml"
        draft.write_text(gateway.text + GLOBEX)
        draft.rename(gateway.file)
        await gateway.become(200, OTHER_KEY)


async def test_limits_that_are_changed_hold_and_what_was_spent_stays_spent(tmp_path: Path) -> None:
    tenants = [{"id": "acme", "requests_per_day": 10}]
    async with FakeWorker() as worker, edited(worker, tmp_path, tenants=tenants) as gateway:
        for _ in range(4):
            assert (await gateway.ask()).headers["x-ratelimit-limit-requests"] == "10"
        gateway.file.write_text(gateway.text.replace("requests_per_day = 10", "requests_per_day = 5"))
        while (await gateway.look()).headers["x-ratelimit-limit-requests"] != "5":  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        later = [(await gateway.ask()).status_code for _ in range(5)]
        assert (later[0], later[-1]) == (200, 429), "five are not there any more"
        gateway.file.write_text(gateway.text.replace("requests_per_day = 10\n", ""))
        while (await gateway.ask()).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        assert "x-ratelimit-limit-requests" not in (await gateway.ask()).headers
        assert len(worker.requests) >= 7


async def test_keys_in_redis_come_and_go_with_their_tenant_in_the_file(
    tmp_path: Path, redis_url: str
) -> None:
    sections = {"store": {"url": redis_url, "timeout_ms": 2000}, "admin": {"key_sha256": sha256(ADMIN_KEY)}}
    async with FakeWorker() as worker, edited(worker, tmp_path, **sections) as gateway:
        with_tenant = f'{gateway.text}\n[[tenants]]\nid = "globex"\n'
        gateway.file.write_text(with_tenant)
        assert await gateway.said_of_the_file(IN_FORCE)
        key = await new_key(gateway.running, "globex")
        assert (await gateway.ask(key)).status_code == 200
        gateway.file.write_text(gateway.text)
        await gateway.become(401, key)
        gateway.file.write_text(with_tenant)
        await gateway.become(200, key)


async def new_key(running: Program, tenant: str) -> str:
    """The secret of a key that is kept in Redis."""
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=False, headers=headers) as client:
        created = await client.post(f"{running.admin_url}/admin/keys", json={"tenant": tenant})
    return str(created.json()["key"])


async def test_a_stream_outlives_the_key_that_began_it(tmp_path: Path) -> None:
    goes_on = asyncio.Event()

    async def held(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await goes_on.wait()
        await reply.event(TOKEN)
        await reply.done()

    async with (
        FakeWorker([held, plain_answer]) as worker,
        edited(worker, tmp_path) as gateway,
        Caller(gateway.running.url) as streaming,
    ):
        streaming.ask(STREAMED)
        await streaming.until(b"glad")
        gateway.file.write_text(gateway.text.replace(sha256(KEY), sha256(OTHER_KEY)))
        await gateway.become(401, KEY)
        assert (await gateway.ask(OTHER_KEY)).status_code == 200
        goes_on.set()
        assert b"glad" in await streaming.until(b"[DONE]")


BROKEN = {
    "no TOML": lambda text: text + "[[keys",
    "wrong values": lambda text: (
        text + GLOBEX + 'colour = "red"\n[[tenants]]\nid = "x"\nmax_concurrency = 0\n'
    ),
    "a key of nobody": lambda text: text.replace('id = "acme"\n', 'id = "acme-renamed"\n'),
    "nothing": lambda text: "",
    "no file": None,
}


def problems(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if b" ERROR " in line]


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_file_changes_nothing_is_told_in_one_line_and_can_be_mended(
    tmp_path: Path, kind: str
) -> None:
    async with FakeWorker() as worker, edited(worker, tmp_path) as gateway:
        breaks = BROKEN[kind]
        if breaks is None:
            gateway.file.unlink()
        else:
            gateway.file.write_text(breaks(gateway.text))
        assert len(problems(await gateway.said_of_the_file(KEPT))) == 1
        assert (await gateway.ask(KEY)).status_code == 200
        assert await gateway.status(OTHER_KEY) == 401
        gateway.file.write_text(gateway.text + GLOBEX)
        assert not problems(await gateway.said_of_the_file(IN_FORCE)), "once is enough"
        assert (await gateway.ask(OTHER_KEY)).status_code == 200


async def test_what_needs_a_restart_is_named_and_what_does_not_is_taken_over_all_the_same(
    tmp_path: Path,
) -> None:
    async with FakeWorker() as worker, edited(worker, tmp_path) as gateway:
        changed = gateway.text.replace("max_concurrency = 16", "max_concurrency = 17")
        gateway.file.write_text(changed.replace("drain_s = 1", "drain_s = 2") + GLOBEX)
        [warning, *_] = await gateway.said_of_the_file(IN_FORCE)
        assert b"these need a restart: server.drain_s" in warning
        assert (await gateway.ask(OTHER_KEY)).status_code == 200
        assert await gateway.running.metric("gateway_concurrency_limit") == 17


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_hangup_signal_has_the_file_read_even_if_it_looks_unchanged(
    tmp_path: Path, processes: int, redis_url: str
) -> None:
    server, store = {"processes": processes}, {"url": redis_url}
    async with (
        FakeWorker() as worker,
        edited(worker, tmp_path, server=server, store=store) as gateway,
        AsyncExitStack() as stack,
    ):
        gateway.file.write_text(gateway.text + '\n[[tenants]]\nid = "more"\n')
        for _ in range(processes):  # each says so
            await gateway.said_of_the_file(IN_FORCE)
        looked = gateway.file.stat()
        descriptor = os.open(gateway.file, os.O_WRONLY)
        stack.callback(os.close, descriptor)
        at = gateway.text.index(sha256(KEY))
        os.pwrite(descriptor, sha256(OTHER_KEY).encode(), at)
        os.utime(gateway.file, ns=(looked.st_atime_ns, looked.st_mtime_ns))
        gateway.running.process.send_signal(signal.SIGHUP)
        for _ in range(processes):
            await gateway.said_of_the_file(IN_FORCE)
        assert {await gateway.status(OTHER_KEY) for _ in range(20)} == {200}
        assert {await gateway.status(KEY) for _ in range(20)} == {401}
