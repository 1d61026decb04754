"""Is what tenants are told to have used what they used, however requests, gateways and processes end?"""

import asyncio
import csv
import io
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import app
from tests.conftest import KEY, MODEL, Served, configuration, served, sha256
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, TOKENS, Caller
from tests.e2e.observed import POLL_S
from tests.e2e.program import Program, program
from tests.e2e.test_admin import ADMIN_KEY
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, plain_answer
from tests.ports import free_ports

pytestmark = pytest.mark.usefixtures("either_lane")

LABELS = ("tenant", "key", "model", "outcome")
BY = f"day,{','.join(LABELS)}"
MEASURES = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}
CACHED_TOKENS = 3
OTHER_KEY = "sk-test-globex-0123456789abcdefghijklmnopqrstuvwxyz"
TENANCY = {
    "admin": {"key_sha256": sha256(ADMIN_KEY)},
    "tenants": [{"id": "acme"}, {"id": "globex", "requests_per_day": 2}],
    "keys": [
        {"id": "acme-1", "tenant": "acme", "sha256": sha256(KEY)},
        {"id": "globex-1", "tenant": "globex", "sha256": sha256(OTHER_KEY)},
    ],
}

Row = dict[str, Any]


async def as_asked(request: Received, reply: Reply) -> None:
    """Ends as the request's `user` names, which a worker ignores."""
    match request.json().get("user"):
        case "fails":
            await reply.json({"error": {"message": "no", "code": 500}}, 500)
        case "stalls":
            await reply.stream_head()
            for _ in range(2):
                await reply.event(TOKEN)
            await reply.peer_closed()
        case "cached":
            details = {"cached_tokens": CACHED_TOKENS}
            usage = {"prompt_tokens": 7, "completion_tokens": 8, "prompt_tokens_details": details}
            await reply.json({"choices": [], "usage": usage})
        case _:
            await plain_answer(request, reply)


def places(root: Path) -> list[Path]:
    found = [root / "one", root / "two"]
    for place in found:
        place.mkdir()
    return found


def sharing(worker: FakeWorker, redis_url: str, **sections: Any) -> dict[str, Any]:
    return configuration(worker, **TENANCY, store={"url": redis_url, "timeout_ms": 2000}, **sections)


async def ask(of: Program | Served, body: object = QUESTION, key: str = KEY, times: int = 1) -> list[int]:
    """The statuses of so many calls at once."""
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=of.url, headers=headers, timeout=30, trust_env=False) as client:
        answers = await asyncio.gather(*(client.post(COMPLETIONS, json=body) for _ in range(times)))
    return [answer.status_code for answer in answers]


async def leave(of: Program) -> None:
    """After two tokens of a stream."""
    async with Caller(of.url) as caller:
        caller.ask({**STREAMED, "user": "stalls"})
        for _ in range(2):
            await caller.until(b"glad")
        caller.leave()


async def told(of: Program | Served, by: str = BY) -> Any:
    """What the admin API answers."""
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as client:
        answer = await client.get(f"{of.admin_url}/admin/usage", params={"by": by})
    assert answer.status_code == 200
    return answer.json()


async def until_counted(of: Program, requests: int) -> None:
    """Wait until so many are in the sums that all share. Only polling shows it."""
    while (await told(of))["total"]["requests"] != requests:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


async def printed(place: Path, admin_key: str = ADMIN_KEY) -> tuple[int, list[Row], str]:
    """What `gateway usage --csv -` says: its exit status, its rows, and its standard error."""
    argv = [sys.executable, "-m", "gateway", "usage", "--config", str(place / "gateway.toml")]
    process = await asyncio.create_subprocess_exec(
        *[*argv, "--by", BY, "--csv", "-"],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"GATEWAY_ADMIN_KEY": admin_key},
    )
    out, errors = await process.communicate()
    rows: list[Row] = list(csv.DictReader(io.StringIO(out.decode())))
    for row in rows:
        row |= {name: int(row[name]) for name in MEASURES}
    assert process.returncode is not None
    return process.returncode, rows, errors.decode()


def lines(*files: Path) -> list[Row]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def charged(log: Iterable[Row]) -> dict[tuple[str, ...], list[int]]:
    """Requests and tokens by LABELS, as the log's lines of known callers add up."""
    sums: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for line in log:
        if line["key"]:
            of = sums[tuple(line[label] for label in LABELS)]
            of[0] += 1
            of[1] += line["charged_tokens"] or 0
    return dict(sums)


def summed(rows: Iterable[Row]) -> dict[tuple[str, ...], list[int]]:
    """The same of rows of usage, over the days."""
    sums: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        of = sums[tuple(row[label] for label in LABELS)]
        of[0] += row["requests"]
        of[1] += row["prompt_tokens"] + row["completion_tokens"]
    return dict(sums)


async def every_ending(of: Program) -> None:
    """Sixteen requests, thirteen of them by known callers."""
    assert await ask(of, times=3) == [200] * 3
    assert await ask(of, STREAMED, times=2) == [200] * 2
    assert await ask(of, {**QUESTION, "user": "cached"}) == [200]
    assert await ask(of, {**QUESTION, "user": "fails"}) == [502]
    assert await ask(of, {**QUESTION, "n": 99}) == [400]
    assert await ask(of, {**QUESTION, "model": "none"}) == [404]
    assert await ask(of, key="sk-unknown", times=3) == [401] * 3
    await leave(of)
    assert set(await ask(of, key=OTHER_KEY, times=3)) <= {200, 429}


async def test_sums_over_two_gateways_are_those_of_their_logs_by_whichever_way_they_are_told(
    redis_url: str, tmp_path: Path
) -> None:
    one_place, two_place = places(tmp_path)
    async with FakeWorker(as_asked) as worker:
        config = sharing(worker, redis_url)
        async with program(config, one_place) as one, program(config, two_place) as two:
            await asyncio.gather(every_ending(one), every_ending(two))
            await until_counted(one, 26)
            answers = [await told(of) for of in (one, two)]
            status, rows, _ = await printed(one_place)
        logged = lines(one.log, two.log)
    assert len(logged) == 32
    assert answers[0] == answers[1]
    assert (status, rows) == (0, answers[0]["data"])
    assert summed(rows) == charged(logged)
    assert {
        (tenant, outcome): requests for (tenant, _, _, outcome), [requests, _] in summed(rows).items()
    } == {
        ("acme", "ok"): 12,
        ("acme", "worker_failed"): 2,
        ("acme", "invalid_value"): 2,
        ("acme", "model_not_found"): 2,
        ("acme", "client_gone"): 2,
        ("globex", "ok"): 2,
        ("globex", "rate_limit_exceeded"): 4,
    }
    [ok] = [row for row in rows if (row["tenant"], row["outcome"]) == ("acme", "ok")]
    assert (ok["prompt_tokens"], ok["cached_tokens"]) == (12 * PROMPT_TOKENS, 2 * CACHED_TOKENS)
    assert answers[0]["total"] == {name: sum(row[name] for row in rows) for name in MEASURES}


async def test_a_gateway_that_is_killed_takes_with_it_no_more_than_what_it_had_not_told_yet(
    redis_url: str, tmp_path: Path
) -> None:
    one_place, two_place = places(tmp_path)
    async with FakeWorker() as worker:
        config = sharing(worker, redis_url)
        async with program(config, two_place) as other:
            async with program(config, one_place) as killed:
                await ask(killed, times=10)
                await until_counted(other, 10)
                await ask(killed, times=30)
                killed.process.kill()
                await killed.process.wait()
            [row] = (await told(other))["data"]
            assert 10 <= row["requests"] <= 40
            assert row["prompt_tokens"] == row["requests"] * PROMPT_TOKENS
            assert row["completion_tokens"] == row["requests"] * TOKENS
            async with program(config, one_place) as again:
                await ask(again, times=5)
                await until_counted(other, row["requests"] + 5)


async def test_a_gateway_that_is_told_to_end_loses_no_usage_and_no_record(
    redis_url: str, tmp_path: Path
) -> None:
    async with FakeWorker(as_asked) as worker:
        config = sharing(worker, redis_url, usage={"records": str(tmp_path / "records.jsonl")})
        async with program(config, tmp_path) as ended:
            await ask(ended, times=30)
            await asyncio.gather(*(leave(ended) for _ in range(5)))
            ended.terminate()
            assert await ended.process.wait() == 0
        _, rows, _ = await printed(tmp_path)
    counted = Counter({row["outcome"]: row["requests"] for row in rows})
    assert (counted.total(), counted["ok"]) == (35, 30)
    assert summed(rows) == charged(lines(ended.log))
    assert Counter(record["outcome"] for record in lines(tmp_path / "records.jsonl")) == counted


async def test_what_was_put_off_is_counted_when_a_gateway_ends(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "FOLD_EVERY_S", 3600)
    async with FakeWorker() as worker:
        config = sharing(worker, redis_url, usage={"records": str(tmp_path / "records.jsonl")})
        async with served(config) as ended:
            assert await ask(ended, times=3) == [200] * 3
        async with served(config) as later:
            assert (await told(later))["total"]["requests"] == 3
    assert len(lines(tmp_path / "records.jsonl")) == 3


async def test_gateways_may_share_a_file_of_records_which_has_a_line_for_each_request_of_a_known_caller(
    redis_url: str, tmp_path: Path
) -> None:
    one_place, two_place = places(tmp_path)
    file = tmp_path / "records.jsonl"
    async with FakeWorker(as_asked) as worker:
        config = sharing(worker, redis_url, usage={"records": str(file)})
        async with program(config, one_place) as one, program(config, two_place) as two:
            await asyncio.gather(every_ending(one), every_ending(two))
    logged = {line["request_id"]: line for line in lines(one.log, two.log) if line["key"]}
    records = {record["request_id"]: record for record in lines(file)}
    assert len(lines(file)) == len(records) == 26
    assert records.keys() == logged.keys()
    for name, record in records.items():
        line = logged[name]
        same = (*LABELS, "endpoint")
        assert [record[label] for label in same] == [line[label] for label in same]
        assert record["prompt_tokens"] + record["completion_tokens"] == (line["charged_tokens"] or 0)


@pytest.mark.parametrize("key", [ADMIN_KEY, "sk-another"])
async def test_with_the_memory_store_the_command_asks_the_gateway_that_runs(tmp_path: Path, key: str) -> None:
    async with FakeWorker() as worker:
        config = configuration(worker, **TENANCY, server={"admin_port": free_ports(1)[0]})
        async with program(config, tmp_path) as running:
            await ask(running, times=3)
            await running.reaches(3, "gateway_requests_total")
            status, rows, errors = await printed(tmp_path, key)
            if key == ADMIN_KEY:
                assert (status, rows) == (0, (await told(running))["data"])
                assert [(row["tenant"], row["model"], row["requests"]) for row in rows] == [
                    ("acme", MODEL, 3)
                ]
            else:
                assert (status, rows) == (1, [])
                assert key not in errors
                assert "Incorrect API key" in errors
