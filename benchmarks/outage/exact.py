"""Many calls at once through several replicas of several processes: is a limit one limit over all of them?"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.footprint.streams import chat
from benchmarks.outage.caller import Answer, ask
from benchmarks.outage.rig import Gateway, Stand
from benchmarks.outage.worker import MODEL
from benchmarks.targets import Row

REPLICAS = 2
PROCESSES = 2
INTERVAL_S = 0.01
BY_REQUESTS, BY_TOKENS = "by-requests", "by-tokens"


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters."""

    per_minute: int = 20
    calls: int = 200
    budget_tokens: int = 1000  # of a day, so that nothing comes back meanwhile
    budget_calls: int = 20
    max_tokens: int = 100  # of each of these calls, all of which the worker makes

    @property
    def duration_s(self) -> float:
        return self.max_tokens * INTERVAL_S


async def measure(stand: Stand, plan: Plan) -> list[Row]:
    """Raises ServiceFailed or httpx.HTTPError where a gateway does not serve."""
    tenants = {
        BY_REQUESTS: {"requests_per_minute": plan.per_minute},
        BY_TOKENS: {"tokens_per_day": plan.budget_tokens},
    }
    async with stand.gateways(REPLICAS, tenants, processes=PROCESSES) as gateways:
        plain = chat(MODEL, 1, BY_REQUESTS, stream=False)
        many = await _at_once(gateways, stand.key(BY_REQUESTS), plain, plan.calls)
        reached = stand.worker.visits.begun(BY_REQUESTS)
        streamed = chat(MODEL, plan.max_tokens, BY_TOKENS, stream=True)
        few = await _at_once(gateways, stand.key(BY_TOKENS), streamed, plan.budget_calls)
    logs = [gateway.log() for gateway in gateways]  # whole now that they have ended
    return [*of_requests(plan, many, reached), *of_tokens(plan, few, logs)]


async def _at_once(gateways: Sequence[Gateway], key: str, body: bytes, calls: int) -> list[Answer]:
    """In turn to each of the replicas."""
    return await asyncio.gather(
        *(ask(gateways[number % len(gateways)].url, key, body) for number in range(calls))
    )


def of_requests(plan: Plan, answers: Sequence[Answer], reached: int) -> list[Row]:
    """reached: how many came to the worker."""
    took_s = max(each.ended_s for each in answers) - min(each.begun_s for each in answers)
    came_back = int(took_s * plan.per_minute / 60)
    title = f"{plan.calls} calls at once, {plan.per_minute} a minute"
    return [
        Row(f"{title}: at the worker", reached, "", plan.per_minute + came_back, plan.per_minute),
        Row(f"{title}: answered 200", sum(each.is_served for each in answers), "", reached, reached),
        Row(f"{title}: neither 200 nor 429", _odd(answers), "", 0),
        Row(f"{title}: time for all", took_s, "s"),
    ]


def of_tokens(plan: Plan, answers: Sequence[Answer], logs: Sequence[str]) -> list[Row]:
    """logs: of all replicas, which tell what each request was taken to need, and charged."""
    lines = [json.loads(line) for log in logs for line in log.splitlines() if line.startswith("{")]
    granted = [line for line in lines if line["tenant"] == BY_TOKENS and line["status"] == 200]
    reserved = sum(line["estimated_prompt_tokens"] + plan.max_tokens for line in granted)
    charged = sum(line["charged_tokens"] for line in granted)
    title = f"{plan.budget_calls} calls at once, {plan.budget_tokens} tokens"
    return [
        Row(f"{title}: granted", len(granted), "", None, 1),
        Row(f"{title}: tokens granted", reserved, "", plan.budget_tokens),
        Row(f"{title}: tokens charged", charged, "", plan.budget_tokens),
        Row(f"{title}: neither 200 nor 429", _odd(answers), "", 0),
    ]


def _odd(answers: Sequence[Answer]) -> int:
    return sum(each.status not in (200, 429) for each in answers)
