"""A process that meters, for tests to kill: `python -m tests.gateway.usage.metering REDIS_URL`.

It records requests of 3 prompt tokens until its standard input ends. Each line it writes is "recorded N"
before N requests are recorded, or "added N" once Redis has confirmed N of them.
"""

import asyncio
import sys

from gateway.model import Usage
from gateway.settings import Store
from gateway.stores.redis.target import Target
from gateway.stores.redis.usage import RedisUsage
from gateway.usage import Meter, meter
from gateway.usage.rows import Sums
from tests.gateway.usage.samples import ended

AT_ONCE = 7


class Telling(RedisUsage):
    added = 0

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        await super().apply(process, sequence, sums)
        self.added += sum(counts[0] for counts in sums.values())
        print("added", self.added, flush=True)


async def record(url: str) -> None:
    client = Target(Store(url=url)).client()
    ends = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    recorded = 0
    async with Meter(Telling(client, "gateway", 400)) as metering:
        while not ends.done():
            recorded += AT_ONCE
            print("recorded", recorded, flush=True)
            for _ in range(AT_ONCE):
                metering.record(ended(charged=Usage(prompt_tokens=3, completion_tokens=0)))
            await asyncio.sleep(0.001)
    await client.aclose()


if __name__ == "__main__":
    meter.FLUSH_EVERY_S = 0.02
    asyncio.run(record(sys.argv[1]))
