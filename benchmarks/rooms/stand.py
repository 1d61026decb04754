"""What do all rooms get to do? One short chat, of one tenant with every kind of limit, everything on."""

import hashlib
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.footprint.worker import PROMPT_TOKENS, Words
from benchmarks.overhead.requests import MODEL, PLAIN_TOKENS, STREAM_TOKENS, body, headers, wired
from benchmarks.rooms.wires import END_BYTES
from gateway import parts
from gateway.accounting import Ledger
from gateway.configuration import parse
from gateway.fleet import Fleet, Member
from gateway.journal import Journal
from gateway.model import Caller, Endpoint, Fields, Incoming, Job, Quota, Quotas, Trip, Usage
from gateway.outbox import write_now
from gateway.settings import Settings
from gateway.upstream import WorkerClient

KEY = "sk-rooms"
HUGE = 10**9  # a limit that holds nobody up
URL = "http://127.0.0.1:8080"
CLOCK = time.monotonic  # as in the gateway
CALLERS = 32  # at once, as in benchmarks.overhead

WORDS = Words(MODEL)
ANSWER = WORDS.plain(PLAIN_TOKENS)
ANSWER_BODY = ANSWER.partition(b"\r\n\r\n")[2]
# What the last part of an answer ends with, in END_BYTES: of a stream, the last chunk, alone or after others.
ANSWER_ENDS = {ANSWER_BODY[-END_BYTES:]}
STREAM_ENDS = {b"0\r\n\r\n", b"\n0\r\n\r\n"}
USAGE = Usage(PROMPT_TOKENS, PLAIN_TOKENS)


def request(*, stream: bool) -> bytes:
    """As it comes from the caller."""
    return wired(URL, KEY, content(stream=stream))


def content(*, stream: bool) -> bytes:
    return body(STREAM_TOKENS if stream else PLAIN_TOKENS, stream=stream)


def event(chunk: bytes) -> bytes:
    """What is in a chunk."""
    return chunk.partition(b"\r\n")[2][:-2]


def settings(workers: int = 2) -> Settings:
    """A whole configuration, with defaults wherever there are some."""
    tenant = {
        "id": "bench",
        "requests_per_minute": HUGE,
        "tokens_per_minute": HUGE,
        "max_concurrency": HUGE,
    }
    raw: dict[str, Any] = {
        "store": {"url": "memory://"},
        "routing": {"policy": "length_bucket"},
        "models": [{"name": MODEL, "max_model_len": 32768}],
        "tenants": [tenant],
        "keys": [
            {"id": "bench-1", "tenant": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest()},
        ],
        "workers": [
            {"id": f"w{number}", "url": f"http://127.0.0.1:{9000 + number}", "model": MODEL}
            for number in range(workers)
        ],
    }
    return parse(raw, {})


class Nowhere(io.BytesIO):
    """Takes what is written, and keeps nothing of it."""

    def write(self, data: Any, /) -> int:
        return len(data)


def journal() -> Journal:
    """A log of requests that goes nowhere."""
    return Journal(Nowhere())


@dataclass(frozen=True, slots=True)
class Case:
    """A request as the rooms hand it on."""

    settings: Settings
    fields: Fields
    incoming: Incoming
    body: bytes
    caller: Caller
    job: Job

    def trip(self) -> Trip:
        """One that has come to a good end."""
        now = CLOCK()
        return Trip(
            self.incoming.id,
            self.incoming.endpoint,
            now - 0.05,
            caller=self.caller,
            job=self.job,
            quotas=Quotas(Quota(HUGE, HUGE - 1, 0.01), Quota(HUGE, HUGE - 100, 0.01)),
            worker="w0",
            sent_at=now - 0.0499,
            first_token_at=now,
            gaps=ledger().gaps() if self.job.stream else None,
            usage=USAGE,
            charged=USAGE,
            status=200,
            outcome="ok",
        )


def case(*, stream: bool = False, workers: int = 2) -> Case:
    made = settings(workers)
    asked = content(stream=stream)
    given = {"host": URL.removeprefix("http://"), "content-length": str(len(asked)), **headers(KEY)}
    fields = {name.encode(): value.encode() for name, value in given.items()}
    caller = parts.authenticator(made, None, b"salt").recognise(fields)
    assert caller is not None, "the key is not known"
    incoming = Incoming(f"{1:032x}", Endpoint.CHAT, fields)
    job = parts.intake(made, parts.catalogue(made)).read(incoming, asked, caller)
    return Case(made, fields, incoming, asked, caller, job)


def ledger() -> Ledger:
    """One that nobody looks at."""
    return Ledger(CLOCK, lambda line: None)


def up(settings: Settings) -> Fleet:
    """All workers are well."""
    return crew(settings)[0]


def crew(settings: Settings) -> tuple[Fleet, Mapping[Member, WorkerClient]]:
    """That, and clients that put no write off: a worker that answers meanwhile is not waited for."""
    fleet, models = parts.fleet(settings, CLOCK, None), parts.catalogue(settings)
    made = parts.crew(settings, fleet, models, parts.intake(settings, models), write_now)
    made.take("the benchmark", parts.workers(settings))
    for member in fleet.members.values():
        fleet.healthy(member)
    return fleet, made.clients


async def closed(clients: Mapping[Member, WorkerClient]) -> None:
    for client in clients.values():
        await client.aclose()
