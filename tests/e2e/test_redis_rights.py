"""Do the rights that the README names for a Redis user suffice, and are they needed?"""

import re
import time
from pathlib import Path

from gateway.keyring import Keyring
from gateway.settings import Store, TenantSettings
from gateway.stores.redis.registry import RedisRegistry
from gateway.stores.redis.target import Target
from tests.conftest import configuration, served
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.fakes import FakeWorker
from tests.redis_server import RedisServer

README = Path(__file__).resolve().parents[2] / "README.md"


def rights() -> list[str]:
    """As the README has them."""
    [named] = re.findall(r"needs its own keys, the channel `(\S+)`, and `([^`]+)`", README.read_text())
    channel, commands = named
    return ["-@all", "resetkeys", "~gateway:*", "resetchannels", f"&{channel}", *commands.split()]


async def test_the_rights_that_the_readme_names_are_enough_for_everything() -> None:
    with RedisServer("--user", "gateway", "on", ">secret", *rights()) as server:
        url = f"redis://gateway:secret@127.0.0.1:{server.port}/0"
        async with (
            FakeWorker() as worker,
            Target(Store(url=url)).client() as client,
            served(configuration(worker, store={"url": url}, keys=[], tenants=[])) as gateway,
        ):
            keyring = Keyring([], [], RedisRegistry(client))
            await keyring.put_tenant(TenantSettings(id="acme", requests_per_minute=10, max_concurrency=5))
            new = await keyring.create("acme")
            async with gateway.http(new.secret) as caller:
                answer = await caller.post(COMPLETIONS, json=QUESTION)
                assert answer.status_code == 200
                assert answer.headers["x-ratelimit-remaining-requests"] == "9"
                assert "x-gateway-degraded" not in answer.headers
                await keyring.rotate(new.record.id, grace_s=0)
                while (await caller.get("/v1/models")).status_code != 401:
                    pass
            await gateway.idle()
            gateway.gateway.flush()
            assert await gateway.gateway._meter.flush()
            await keyring.revoke(new.record.id)
            await keyring.delete_tenant("acme")
            today = time.strftime("%Y-%m-%d", time.gmtime())
            assert await client.exists(f"gateway:usage:{today}")
