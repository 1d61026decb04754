"""Does a gateway do its work at all? Before it is measured, and ours also after."""

import json
import time
from typing import Any

import httpx

from benchmarks.footprint.rig import total_of
from benchmarks.footprint.worker import TOKEN
from benchmarks.overhead import requests
from benchmarks.overhead.contenders import Target
from benchmarks.overhead.invalid import Invalid

TOKENS = 5
TIMEOUT_S = 30.0
COUNTED_LIMIT_S = 10.0
POLL_S = 0.05
DATA = "data: "


def check_answers(target: Target) -> None:
    """One answer in one piece and one streamed, token for token. Raises Invalid or httpx.HTTPError."""
    plain = _asked(target, target.key, stream=False)
    check_plain(plain.status_code, plain.text)
    streamed = _asked(target, target.key, stream=True)
    check_stream(streamed.status_code, streamed.text)
    if target.admin_url is not None:
        _check_limits(target, plain)


def _asked(target: Target, key: str, *, stream: bool) -> httpx.Response:
    return httpx.post(
        target.url + requests.PATH,
        content=requests.body(TOKENS, stream=stream),
        headers=requests.headers(key),
        timeout=TIMEOUT_S,
        trust_env=False,
        verify=False,  # plain HTTP has no use for the system's certificates, whose reading takes long
    )


def _check_limits(target: Target, granted: httpx.Response) -> None:
    """A gateway that knows nobody and limits nothing would cost less."""
    if (status := _asked(target, target.key + "x", stream=False).status_code) != 401:
        raise Invalid(f"a wrong key was answered with {status}")
    for kind in ("requests", "tokens"):
        if f"x-ratelimit-limit-{kind}" not in granted.headers:
            raise Invalid(f"{kind} are not limited")


def check_plain(status: int, text: str) -> None:
    """Raises Invalid."""
    if status != 200:
        raise Invalid(f"a request was answered with {status}: {text[:200]}")
    said = _part(text, "message")
    if said != TOKEN * TOKENS:
        raise Invalid(f"an answer has {said!r} instead of {TOKENS} tokens")


def check_stream(status: int, text: str) -> None:
    """Raises Invalid."""
    if status != 200:
        raise Invalid(f"a stream was answered with {status}: {text[:200]}")
    events = [line.removeprefix(DATA) for line in text.splitlines() if line.startswith(DATA)]
    if not events or events.pop() != "[DONE]":
        raise Invalid(f"a stream ends with {text[-200:]!r}")
    said = [content for event in events if (content := _part(event, "delta"))]
    if said != [TOKEN] * TOKENS:
        raise Invalid(f"a stream has {said!r} instead of {TOKENS} tokens")


def _part(text: str, name: str) -> str | None:
    """The content of an answer's one choice. Raises Invalid, also for usage that nobody asked for."""
    try:
        told: dict[str, Any] = json.loads(text)
        [choice] = told["choices"]
        content: str | None = choice[name].get("content")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Invalid(f"{text[:200]!r} is no answer: {error!r}") from error
    return content


def check_counted(target: Target, requests_seen: int) -> None:
    """Ours has counted each request that the workers have seen, and kept its limits. Raises Invalid."""
    if target.admin_url is None:
        return
    deadline_s = time.monotonic() + COUNTED_LIMIT_S
    while (counted := total_of(text := _metrics(target.admin_url), "gateway_requests_total")) < requests_seen:
        if time.monotonic() > deadline_s:
            raise Invalid(f"the workers have seen {requests_seen} requests, and {counted:.0f} were counted")
        time.sleep(POLL_S)
    if total_of(text, "gateway_store_degraded"):
        raise Invalid("limits were not kept in the store")


def _metrics(admin_url: str) -> str:
    return httpx.get(f"{admin_url}/metrics", timeout=TIMEOUT_S, trust_env=False, verify=False).text
