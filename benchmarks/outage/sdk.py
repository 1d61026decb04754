"""More calls than a minute allows, one after the other through the official SDK: does it sit them out?"""

import time
from dataclasses import dataclass

import openai

from benchmarks.outage.rig import Stand
from benchmarks.outage.worker import MODEL
from benchmarks.targets import Row

TENANT = "slow"


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters."""

    per_minute: int = 10
    calls: int = 15

    @property
    def duration_s(self) -> float:
        """What the limit makes it take: all at once up to the limit, then one by one."""
        return (self.calls - self.per_minute) * 60 / self.per_minute


async def measure(stand: Stand, plan: Plan) -> list[Row]:
    """Raises ServiceFailed or httpx.HTTPError where the gateway does not serve."""
    async with (
        stand.gateways(1, {TENANT: {"requests_per_minute": plan.per_minute}}) as [gateway],
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=stand.key(TENANT)) as client,
    ):
        failures = 0
        began_s = time.monotonic()
        for _ in range(plan.calls):
            try:
                await client.chat.completions.create(
                    model=MODEL, max_tokens=1, messages=[{"role": "user", "content": TENANT}]
                )
            except openai.OpenAIError:
                failures += 1
        took_s = time.monotonic() - began_s
        requests = await gateway.metric("gateway_requests_total")
    reached = stand.worker.visits.begun(TENANT)
    return [
        Row("calls that raised", failures, "", 0),
        Row("calls that reached the worker", reached, "", plan.calls, plan.calls),
        Row("retries of the SDK", requests - plan.calls, "", None, 1),
        Row("all calls", took_s, "s", None, plan.duration_s),
    ]
