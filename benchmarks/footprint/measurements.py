"""What is measured of a gateway, how, and what is it held to? One function a question."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks.burst import client, prompts
from benchmarks.burst.records import Plan as BurstPlan
from benchmarks.footprint import memory
from benchmarks.footprint.connecting import AT_ONCE
from benchmarks.footprint.memory import ENDLESS_TOKENS, MB, MODEL, SETTLE_S
from benchmarks.footprint.rig import Rig, Sections, WorkerPlan
from benchmarks.footprint.streams import chat, image_chat, open_streams, reach, upload
from benchmarks.targets import Row

IMAGE_MODEL = "images"  # has a worker of its own, or reading a large body would delay that worker's tokens
INTERVAL_S = 0.02
SLOW_S = 1.0  # between the tokens of many streams, whose number and not whose pace is of interest
QUIET_TOKENS = 150  # of each stream while nothing else happens: three seconds
BURST_TOKENS = 8
BURST_TIMEOUT_S = 120.0
PATIENT_S = 3600  # longer than any measurement, so that what idles or waits is not ended by its default
SMALL_BODY_BYTES = 400
LARGE_BODY_BYTES = 100_000
SMALL_WAITING_KB = 24.0  # targets: for one of them, its body included
LARGE_WAITING_KB = 130.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of all measurements."""

    connections: int  # that idle
    streams: int  # open at once, for the memory of one
    waiting: int  # requests with small bodies, for the memory of one
    waiting_large: int  # the same with large ones
    steady_streams: int  # whose tokens are timed while a body is uploaded
    uploads: int  # one after the other
    body_bytes: int
    requests: int  # of a burst

    @property
    def open_files(self) -> int:
        """The most sockets of one process: the gateway, which has two for each request that is served."""
        served = max(self.streams, self.steady_streams, self.requests)
        return max(2 * served, self.connections + AT_ONCE, self.waiting, self.waiting_large)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A question, and the rig on which it is answered: a fresh one each, so that none disturbs another."""

    question: str
    workers: Sequence[WorkerPlan]
    max_concurrency: int  # of each worker
    run: Callable[[Rig], Awaitable[list[Row]]]
    settings: Sections | None = None  # where they are not the default


def measurements(plan: Plan) -> list[Measurement]:
    """In the order in which they are made."""
    steady, images = WorkerPlan(MODEL, INTERVAL_S), WorkerPlan(IMAGE_MODEL, INTERVAL_S)
    half_of_a_burst = -(-plan.requests // 4)  # so much at each of two workers; the other half waits
    return [
        *_of_memory(plan),
        Measurement("uploads", [steady, images], plan.steady_streams, lambda rig: uploads(rig, plan)),
        Measurement("burst", [steady, steady], half_of_a_burst, lambda rig: burst(rig, plan)),
    ]


def _of_memory(plan: Plan) -> list[Measurement]:
    slow = [WorkerPlan(MODEL, SLOW_S)]
    return [
        Measurement("idle process", slow, 1, memory.idle),
        Measurement(
            "idle connections",
            slow,
            AT_ONCE,
            lambda rig: memory.connections(rig, plan.connections),
            {"server": {"keep_alive_s": PATIENT_S}},
        ),
        Measurement(
            "open streams",
            slow,
            plan.streams,
            lambda rig: memory.streams(rig, plan.streams),
            {"routing": {"adaptive_limit": False}},
        ),
        _waiting("waiting requests", plan.waiting, SMALL_BODY_BYTES, SMALL_WAITING_KB),
        _waiting("large waiting requests", plan.waiting_large, LARGE_BODY_BYTES, LARGE_WAITING_KB),
    ]


def _waiting(question: str, count: int, body_bytes: int, at_most_kb: float) -> Measurement:
    return Measurement(
        question,
        [WorkerPlan(MODEL, SLOW_S)],
        1,
        lambda rig: memory.waiting(rig, count, body_bytes, at_most_kb),
        {"admission": {"max_wait_s": PATIENT_S}},
    )


async def uploads(rig: Rig, plan: Plan) -> list[Row]:
    """The longest gap between two tokens of a stream, alone and while others send large bodies."""
    large = image_chat(IMAGE_MODEL, plan.body_bytes)
    body = chat(MODEL, ENDLESS_TOKENS, stream=True)
    async with open_streams(plan.steady_streams, rig.url, rig.key, body) as opened:
        for stream in opened:
            stream.gaps.restart()
        await reach(opened, QUIET_TOKENS)
        quiet_s = max(stream.gaps.longest_s for stream in opened)
        for stream in opened:
            stream.gaps.restart()
        for _ in range(plan.uploads):
            await upload(rig.url, rig.key, large)
        await reach(opened, 1)  # so that the gap in which the last upload ended counts
        busy_s = max(stream.gaps.longest_s for stream in opened)
    size = f"{plan.uploads} bodies of {plan.body_bytes / MB:g} MB"
    return [
        Row(f"longest gap of {plan.steady_streams} streams, alone", quiet_s * 1000, "ms"),
        Row(f"longest gap of {plan.steady_streams} streams, beside {size}", busy_s * 1000, "ms", at_most=250),
    ]


async def burst(rig: Rig, plan: Plan) -> list[Row]:
    """What is left of many requests at once, after as many that warmed up."""
    unanswered = await _fire(rig, plan.requests)
    before_bytes = rig.rss_bytes()
    unanswered += await _fire(rig, plan.requests)
    in_flight = await rig.reaches("gateway_in_flight", 0, SETTLE_S)
    waiting = await rig.reaches("gateway_queue_depth", 0, SETTLE_S)
    growth = rig.rss_bytes() / before_bytes - 1
    title = f"burst of {plan.requests}"
    return [
        Row(f"{title}: not answered, warm-up included", unanswered, "requests", at_most=0),
        Row(f"{title}: in flight after it", in_flight, "requests", at_most=0),
        Row(f"{title}: in the queue after it", waiting, "requests", at_most=0),
        Row(f"{title}: memory before it", before_bytes / MB, "MB"),
        Row(f"{title}: memory grown by it", growth * 100, "%", at_most=10),
    ]


async def _fire(rig: Rig, requests: int) -> int:
    """All at once through the official SDK. Returns how many were not answered, once nothing is under way."""
    plan = BurstPlan(
        base_url=f"{rig.url}/v1",
        model=MODEL,
        endpoint="chat",
        stream=True,
        requests=requests,
        concurrency=requests,
        max_tokens=BURST_TOKENS,
        prompt_tokens=32,
        prompt_file=None,
        seed=0,
        max_retries=0,
        timeout_s=BURST_TIMEOUT_S,
    )
    texts = prompts.made_up(requests, plan.prompt_tokens, plan.seed)
    async with client.open_client(plan, rig.key) as sdk:
        records = await client.fire(sdk, plan, texts, on_done=lambda record: None)
    await rig.reaches("gateway_in_flight", 0, SETTLE_S)
    return sum(record.failure is not None for record in records)
