"""Does `gateway usage` tell what was used, from Redis or from the running gateway, and fail in one line?"""

import asyncio
import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from gateway.__main__ import main
from gateway.commands import ADMIN_KEY
from gateway.settings import Store
from gateway.stores.redis.target import Target
from gateway.stores.redis.usage import RedisUsage
from gateway.usage.rows import Sums
from tests.gateway.configuration.files import GOOD
from tests.ports import free_ports
from tests.redis_server import RedisServer

TODAY = datetime.now(UTC).date()
KEY = "sk-admin-0123456789"


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GATEWAY_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays the same day while a test runs."""

    class Still(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(TODAY.year, TODAY.month, TODAY.day, 12, tzinfo=UTC)

    monkeypatch.setattr("gateway.commands.usage.datetime", Still)


def ago(days: int) -> str:
    return (TODAY - timedelta(days=days)).isoformat()


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["usage", *map(str, arguments)], prog_name="gateway")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "gateway.toml"


def on_redis(config: Path, url: str) -> Path:
    """A configuration with a store that has the usage of four days."""
    config.write_text(f'[store]\nurl = "{url}"\nprefix = "here"\n{GOOD}')
    used: Sums = {
        (ago(0), "acme", "acme-1", "small", "ok"): (1_000, 2_000_000, 300, 40_000),
        (ago(0), "acme", "acme-2", "small", "client_gone"): (1, 10, 0, 5),
        (ago(6), "globex", "globex-1", "small", "ok"): (2, 20, 4, 6),
        (ago(7), "globex", "globex-1", "large", "ok"): (3, 30, 8, 7),
        (ago(8), "globex", "globex-1", "large", "ok"): (5, 50, 16, 9),
    }

    async def fill() -> None:
        target = Target(Store(url=url))
        client = target.client()
        await RedisUsage(client, "here", retention_days=30).apply("p", 1, used)
        await client.aclose()
        await target.aclose()

    asyncio.run(fill())
    return config


@pytest.fixture
def with_redis(config: Path, redis_url: str) -> Path:
    return on_redis(config, redis_url)


def cells(result: Result) -> list[list[str]]:
    """What is in the table's lines below the headings, its total last."""
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines() if "─" not in line]
    assert lines[0] == ["prompt", "cached", "completion"]
    return lines[2:]


def test_the_last_week_is_told_by_day_tenant_and_model_with_a_total(with_redis: Path) -> None:
    assert cells(run("--config", with_redis)) == [
        [ago(6), "globex", "small", "2", "20", "4", "6"],
        [ago(0), "acme", "small", "1,001", "2,000,010", "300", "40,005"],
        ["total", "1,003", "2,000,030", "304", "40,011"],
    ]


def test_other_days_tenants_and_dimensions_can_be_asked_for(with_redis: Path) -> None:
    period = ("--config", with_redis, "--from", ago(8), "--to", ago(7))
    assert cells(run(*period, "--by", "model")) == [
        ["large", "8", "80", "24", "16"],
        ["total", "8", "80", "24", "16"],
    ]
    assert cells(run("--config", with_redis, "--tenant", "acme", "--by", "outcome,key"))[:-1] == [
        ["client_gone", "acme-2", "1", "10", "0", "5"],
        ["ok", "acme-1", "1,000", "2,000,000", "300", "40,000"],
    ]
    week_before = cells(run("--config", with_redis, "--to", ago(1), "--by", "day"))
    assert [line[0] for line in week_before[:-1]] == [ago(7), ago(6)]


def test_nothing_is_folded_in_what_is_no_terminal(with_redis: Path) -> None:
    result = run("--config", with_redis, "--by", "day,tenant,key,model,outcome")

    assert len(cells(result)) == 4  # three lines and a total


def test_csv_goes_to_a_file_or_to_standard_output(with_redis: Path, tmp_path: Path) -> None:
    printed = run("--config", with_redis, "--by", "tenant", "--csv", "-")
    written = run("--config", with_redis, "--by", "tenant", "--csv", tmp_path / "usage.csv")

    expected = (
        "tenant,requests,prompt_tokens,cached_tokens,completion_tokens\n"
        "acme,1001,2000010,300,40005\n"
        "globex,2,20,4,6\n"
    )
    assert (printed.exit_code, printed.stdout) == (0, expected)
    assert (written.exit_code, written.output) == (0, "")
    assert (tmp_path / "usage.csv").read_text() == expected


def test_json_is_an_object_of_lines_and_their_total(with_redis: Path) -> None:
    result = run("--config", with_redis, "--by", "tenant", "--tenant", "globex", "--json")

    measured = {"requests": 2, "prompt_tokens": 20, "cached_tokens": 4, "completion_tokens": 6}
    assert json.loads(result.stdout) == {
        "by": ["tenant"],
        "data": [{"tenant": "globex"} | measured],
        "total": measured,
    }


def test_no_usage_is_one_line_and_programs_still_get_their_format(with_redis: Path) -> None:
    asked = ("--config", with_redis, "--from", "2020-01-01", "--to", "2020-01-31")
    line = "no usage from 2020-01-01 to 2020-01-31\n"
    table, csv, as_json = run(*asked), run(*asked, "--csv", "-"), run(*asked, "--json")

    assert (table.exit_code, table.stdout, table.stderr) == (0, line, "")
    assert (csv.exit_code, csv.stderr, csv.stdout.count("\n")) == (0, line, 1)
    assert (as_json.exit_code, as_json.stderr, json.loads(as_json.stdout)["data"]) == (0, line, [])
    assert run(*asked, "--tenant", "acme").stdout == "no usage of tenant acme from 2020-01-01 to 2020-01-31\n"


def test_redis_is_found_through_its_sentinels(config: Path) -> None:
    master, sentinel = free_ports(2)
    watch = ("--sentinel", "monitor", "mymaster", "127.0.0.1", str(master), "1")
    with RedisServer(port=master), RedisServer(*watch, port=sentinel, sentinel=True):
        on_redis(config, f"redis+sentinel://127.0.0.1:{sentinel}/mymaster/0")

        assert cells(run("--config", config, "--by", "tenant", "--tenant", "acme"))[-1][1] == "1,001"
    gc.collect()  # connections that were left open are told


def test_a_redis_that_is_away_is_told_in_one_line(config: Path) -> None:
    [port] = free_ports(1)
    config.write_text(f'[store]\nurl = "redis://user:hunter2@127.0.0.1:{port}/0"\n{GOOD}')

    result = run("--config", config)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "Redis does not answer" in result.stderr
    assert "store.url" in result.stderr
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--by", "week"],
            "must be some of day, tenant, key, model, outcome, with commas between, each once",
        ),
        (["--from", "2026-11-30", "--to", "2026-11-29"], "--from 2026-11-30: is after --to 2026-11-29"),
        (["--from", "yesterday"], "'yesterday' does not match the format '%Y-%m-%d'"),
        (["--csv", "-", "--json"], "--csv or --json, not both"),
    ],
)
def test_what_cannot_be_asked_is_refused(with_redis: Path, arguments: list[str], said: str) -> None:
    result = run("--config", with_redis, *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_broken_configuration_is_told(config: Path) -> None:
    config.write_text("[store]\nurl = 5\n")

    result = run("--config", config)

    assert result.exit_code == 2
    assert "store.url = 5" in result.stderr


# With the memory store


class Asked(ThreadingHTTPServer):
    """The admin port of a gateway: gives one answer, and keeps what it was asked."""

    def __init__(self, host: str, status: int, answer: object) -> None:
        super().__init__((host, 0), Answering)
        self.status, self.answer = status, answer
        self.asked: list[tuple[str, str | None]] = []  # path and credential


class Answering(BaseHTTPRequestHandler):
    server: Asked

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["authorization"]))
        body = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def admin_port(answer: object, status: int = 200, host: str = "127.0.0.1") -> Iterator[Asked]:
    with Asked(host, status, answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def in_memory(config: Path, port: int, host: str = "127.0.0.1") -> Path:
    config.write_text(f'[server]\nadmin_host = "{host}"\nadmin_port = {port}\n{GOOD}')
    return config


ROW = {
    "day": "2026-11-30",
    "tenant": "acme",
    "key": "acme-1",
    "model": "small",
    "outcome": "ok",
    "requests": 3,
    "prompt_tokens": 30,
    "cached_tokens": 8,
    "completion_tokens": 7,
}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_the_memory_store_the_running_gateway_is_asked(
    config: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv(ADMIN_KEY, KEY)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # is not for what is here
    with admin_port({"object": "list", "data": [ROW]}) as gateway:
        asked = ("--config", in_memory(config, gateway.server_port, host), "--by", "tenant")
        table = run(*asked, "--from", "2026-11-01", "--to", "2026-11-30", "--tenant", "acme")
        run(*asked)

    assert cells(table) == [["acme", "3", "30", "8", "7"], ["total", "3", "30", "8", "7"]]
    assert [credential for _, credential in gateway.asked] == [f"Bearer {KEY}"] * 2
    assert [urlsplit(path).path for path, _ in gateway.asked] == ["/admin/usage"] * 2
    assert [parse_qs(urlsplit(path).query) for path, _ in gateway.asked] == [
        {"from": ["2026-11-01"], "to": ["2026-11-30"], "tenant": ["acme"]},
        {"from": [ago(6)], "to": [ago(0)]},
    ]


@pytest.mark.parametrize("key", [None, "", "schlüssel", "two words"])
def test_the_admin_key_is_asked_for(config: Path, monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    if key is not None:
        monkeypatch.setenv(ADMIN_KEY, key)
    result = run("--config", in_memory(config, 8081))

    assert (result.exit_code, result.stdout) == (1, "")
    assert "Export its admin key in GATEWAY_ADMIN_KEY; gateway keys admin makes one" in result.stderr
    assert not key or key not in result.stderr


def test_a_gateway_that_does_not_run_is_told(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADMIN_KEY, KEY)
    [port] = free_ports(1)
    for host, place in (("127.0.0.1", "127.0.0.1"), ("::", "[::1]")):
        result = run("--config", in_memory(config, port, host))

        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert result.stderr.startswith(f"Error: http://{place}:{port}/admin/usage: ")
        assert result.stderr.endswith("Is the gateway running?\n")


def test_a_gateway_on_any_free_port_cannot_be_found(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADMIN_KEY, KEY)
    result = run("--config", in_memory(config, 0))

    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "server.admin_port = 0" in result.stderr


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (
            401,
            {"error": {"message": "Incorrect admin key.", "code": "invalid_api_key"}},
            "Incorrect admin key.",
        ),
        (200, {"data": [{"day": "2026-11-30"}]}, "is another program on that port?"),
        (200, "ok", "is another program on that port?"),
        (404, {"detail": "Not Found"}, "is another program on that port?"),
    ],
)
def test_an_answer_without_usage_is_told(
    config: Path, monkeypatch: pytest.MonkeyPatch, status: int, answer: object, said: str
) -> None:
    monkeypatch.setenv(ADMIN_KEY, KEY)
    with admin_port(answer, status) as gateway:
        result = run("--config", in_memory(config, gateway.server_port))

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert said in result.stderr
