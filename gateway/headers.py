"""What the headers of an answer tell, in the words of OpenAI's API and of ours."""

import math
import random
import re
from collections.abc import Iterable, Iterator

from gateway.errors import Draining, GatewayError, MethodNotAllowed, Refused, Unauthorized
from gateway.model import Fields, Headers, Quota, Quotas, Trip

Header = tuple[bytes, bytes]

CLOSE: Header = (b"connection", b"close")
JSON: Header = (b"content-type", b"application/json")
_acceptable_id = re.compile(rb"[A-Za-z0-9._-]{1,64}").fullmatch


def by_name(headers: Headers) -> Fields:
    """Headers by name. The values of one that comes several times are joined, as HTTP has it."""
    fields = dict(headers)
    if len(fields) < len(headers):
        values: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            values.setdefault(name, []).append(value)
        return {name: b", ".join(several) for name, several in values.items()}
    return fields


def request_id(fields: Fields) -> str:
    """The caller's own id if it is harmless, else a new one."""
    value = fields.get(b"x-request-id")
    if value is not None and _acceptable_id(value):
        return value.decode("ascii")
    return "%032x" % random.getrandbits(128)  # a name, not a secret  # noqa: UP031 - half the time


def lines(headers: Iterable[Header]) -> bytes:
    """Headers as they go over the wire; each line ends in CRLF."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def split(lines: bytes) -> Iterator[Header]:
    """What `lines` has joined."""
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b": ")
        yield name, value


def of_quotas(quotas: Quotas) -> Iterator[Header]:
    """x-ratelimit-*, of those limits that there are."""
    return split(_of_quotas(quotas).encode("ascii"))


def told(trip: Trip, now: float) -> bytes:
    """The headers that every answer to a completion has, as far as they are known, as `lines` makes them."""
    quotas, job = trip.quotas, trip.job
    text = f"x-request-id: {trip.id}\r\nopenai-processing-ms: {int((now - trip.began) * 1000)}\r\n"
    if quotas:
        text += _of_quotas(quotas)
    if job:
        text += f"x-gateway-bucket: {job.bucket}\r\nx-gateway-queue-ms: {int(trip.queue_s * 1000)}\r\n"
    if trip.worker:
        text += f"x-gateway-worker: {trip.worker}\r\n"
    return text.encode("ascii")


def _of_quotas(quotas: Quotas) -> str:
    text = _of_quota(quotas.requests, "requests") if quotas.requests else ""
    if quotas.tokens:
        text += _of_quota(quotas.tokens, "tokens")
    return text + f"x-gateway-degraded: {quotas.degraded}\r\n" if quotas.degraded else text


def _of_quota(quota: Quota, kind: str) -> str:
    return (
        f"x-ratelimit-limit-{kind}: {quota.limit}\r\n"
        f"x-ratelimit-remaining-{kind}: {quota.remaining}\r\n"
        f"x-ratelimit-reset-{kind}: {go_duration(quota.reset_s)}\r\n"
    )


def of_error(error: GatewayError) -> Iterator[Header]:
    """When to come back, and whether that can help."""
    if isinstance(error, Refused):
        wait_s = min(max(error.retry_after_s or 1.0, 0.001), 60.0)
        yield b"retry-after", b"%d" % math.ceil(wait_s)
        yield b"retry-after-ms", b"%d" % math.ceil(wait_s * 1000)
    if error.should_retry is not None:
        yield b"x-should-retry", b"true" if error.should_retry else b"false"
    if isinstance(error, MethodNotAllowed):
        yield b"allow", error.allow.encode("ascii")
    if isinstance(error, Unauthorized):
        yield b"www-authenticate", b"Bearer"
    if isinstance(error, Draining):
        yield CLOSE


def go_duration(seconds: float) -> str:
    """As Go's time.Duration prints it, in which OpenAI tells when a limit is full again: 6m0s, 1.5s, 12ms."""
    ms = math.ceil(seconds * 1000)
    if ms < 1000:
        return f"{ms}ms" if ms else "0s"
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
