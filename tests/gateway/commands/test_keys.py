"""Do the commands for keys what they say, in the file and in Redis, and do they show each secret once?"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import Result

from gateway.keyring import minting
from gateway.settings import Settings, Store, TenantSettings
from gateway.stores.redis.registry import RedisRegistry
from gateway.stores.redis.target import Target
from tests.conftest import KEY, served, sha256
from tests.gateway.commands.conftest import Run
from tests.gateway.configuration.files import ANY_PORT, GOOD
from tests.ports import free_ports

Answer = TypeVar("Answer")
DAY_S = 86400


@pytest.fixture
def in_redis(good: Path, redis_url: str) -> Path:
    """The same configuration with a Redis store, which is empty."""
    good.write_text(f'{ANY_PORT}{GOOD}\n[store]\nurl = "{redis_url}"\n', encoding="utf-8")
    return good


@pytest.fixture
def away(good: Path) -> Path:
    """The same configuration with a Redis that is not there."""
    (port,) = free_ports(1)
    url = f"redis://:hunter2@127.0.0.1:{port}/0"
    good.write_text(f'{ANY_PORT}{GOOD}\n[store]\nurl = "{url}"\n', encoding="utf-8")
    return good


def secret_of(result: Result, key_id: str) -> str:
    """The secret that was printed, which is there once."""
    assert (result.exit_code, result.stderr) == (0, "")
    (secret,) = re.findall(rf"sk-{re.escape(key_id)}-[A-Za-z0-9_-]{{43}}", result.stdout)
    assert f"\n\n    {secret}\n\n" in result.stdout
    return str(secret)


def pasted(result: Result) -> str:
    """The TOML that was printed."""
    return result.stdout[result.stdout.index("[[keys]]") :]


def ask(url: str, question: Callable[[RedisRegistry], Awaitable[Answer]]) -> Answer:
    """What Redis knows."""

    async def answered() -> Answer:
        target = Target(Store(url=url))
        async with target.client() as client:
            return await question(RedisRegistry(client))

    return asyncio.run(answered())


def key_of(url: str, secret: str) -> str | None:
    """The id of the key that this secret opens, in Redis."""
    found = ask(url, lambda registry: registry.find(minting.sha256(secret)))
    return found.key_id if found else None


# create, for the file


@pytest.fixture
def without_keys(good: Path) -> Path:
    good.write_text(GOOD.partition("[[keys]]")[0], encoding="utf-8")
    return good


async def test_a_key_is_made_that_opens_the_door_once_it_is_pasted(gateway: Run, without_keys: Path) -> None:
    arguments = ("--tenant", "acme", "--id", "acme-2")
    result = await asyncio.to_thread(gateway, "keys", "create", "--config", without_keys, *arguments)

    secret = secret_of(result, "acme-2")
    async with (
        served(tomllib.loads(GOOD.partition("[[keys]]")[0] + pasted(result)), wait_ready=False) as running,
        running.http(secret) as known,
        running.http(KEY) as unknown,
    ):
        assert (await known.get("/v1/models")).status_code == 200
        assert (await unknown.get("/v1/models")).status_code == 401
    assert secret not in pasted(result)


def test_what_is_to_be_pasted_has_the_keys_name_and_end(gateway: Run, good: Path) -> None:
    arguments = ("--tenant", "acme", "--id", "acme-2", "--expires", "2099-01-31")
    result = gateway("keys", "create", "--config", good, *arguments)

    secret = secret_of(result, "acme-2")
    (key,) = Settings.model_validate(tomllib.loads(pasted(result))).keys
    assert (key.id, key.tenant, key.sha256) == ("acme-2", "acme", sha256(secret))
    assert key.expires_at is not None
    assert key.expires_at.isoformat() == "2099-01-31T00:00:00+00:00"
    assert str(good) in result.stdout


def test_no_two_keys_are_alike(gateway: Run, good: Path) -> None:
    made = [gateway("keys", "create", "--config", good, "--tenant", "acme") for _ in range(2)]

    keys = [tomllib.loads(pasted(result))["keys"][0] for result in made]
    assert keys[0]["id"] != keys[1]["id"]
    assert keys[0]["sha256"] != keys[1]["sha256"]
    assert all(key["id"].startswith("acme-") for key in keys)


BAD = [
    (["--tenant", "acne"], 'There is no tenant "acne". Add it to [[tenants]]'),
    (["--tenant", "acme", "--id", "acme-1"], 'There is a key "acme-1" already. Choose another id'),
    (["--tenant", "acme", "--id", 'a"b'], "A key's id must be 1 to 64 letters, digits or . _ -"),
    (["--tenant", "acme", "--expires", "2001-01-01"], "expires_at must be a time to come"),
    (["--tenant", "acme", "--expires", "soon"], "Invalid value for '--expires': \"soon\" is no time"),
    ([], "Missing option '--tenant'"),
]


@pytest.mark.parametrize("store", ["good", "in_redis"])
@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_a_key_that_could_not_be_used_is_not_made(
    gateway: Run, request: pytest.FixtureRequest, store: str, arguments: list[str], message: str
) -> None:
    result = gateway("keys", "create", "--config", request.getfixturevalue(store), *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {message}" in result.stderr


# create, in Redis


def test_a_key_is_kept_in_redis_and_its_secret_printed_once(
    gateway: Run, in_redis: Path, redis_url: str
) -> None:
    arguments = ("--tenant", "acme", "--id", "acme-2", "--expires", "2099-01-31")
    result = gateway("keys", "create", "--config", in_redis, *arguments)

    secret = secret_of(result, "acme-2")
    (record,) = ask(redis_url, lambda registry: registry.keys())
    assert (record.id, record.tenant) == ("acme-2", "acme")
    assert [of.sha256 for of in record.secrets] == [minting.sha256(secret)]
    assert result.stdout.endswith("Key acme-2 of tenant acme is good now. Expires: 2099-01-31T00:00:00Z.\n")
    assert minting.sha256(secret) not in result.stdout
    assert key_of(redis_url, secret) == "acme-2"


def test_a_key_can_be_made_for_a_tenant_of_redis_where_the_file_has_none(
    gateway: Run, in_redis: Path, redis_url: str
) -> None:
    in_redis.write_text(re.sub(r"\[\[tenants\]\](.|\n)*?(?=\[store\])", "", in_redis.read_text()))
    ask(redis_url, lambda registry: registry.put_tenant(TenantSettings(id="globex")))

    made = gateway("keys", "create", "--config", in_redis, "--tenant", "globex", "--id", "g-1")
    refused = gateway("keys", "create", "--config", in_redis, "--tenant", "acme")

    assert key_of(redis_url, secret_of(made, "g-1")) == "g-1"
    assert refused.exit_code == 2
    assert 'There is no tenant "acme"' in refused.stderr


def test_an_id_that_redis_has_is_refused(gateway: Run, in_redis: Path) -> None:
    arguments = ("keys", "create", "--config", in_redis, "--tenant", "acme", "--id", "acme-2")
    gateway(*arguments)

    result = gateway(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert 'There is a key "acme-2" already' in result.stderr


# rotate


def test_a_rotated_key_has_two_secrets_until_the_grace_is_over(
    gateway: Run, in_redis: Path, redis_url: str
) -> None:
    made = gateway("keys", "create", "--config", in_redis, "--tenant", "acme", "--id", "acme-2")
    old = secret_of(made, "acme-2")
    before = time.time()

    result = gateway("keys", "rotate", "acme-2", "--config", in_redis, "--grace", "2d")

    new = secret_of(result, "acme-2")
    (record,) = ask(redis_url, lambda registry: registry.keys())
    until = record.secrets[1].expires_at
    assert new != old
    assert (key_of(redis_url, old), key_of(redis_url, new)) == ("acme-2", "acme-2")
    assert until is not None
    assert before + 2 * DAY_S <= until <= time.time() + 2 * DAY_S
    assert time.strftime("The old one is good until %Y-%m-%dT%H:%M:%SZ.", time.gmtime(until)) in result.stdout


def test_without_grace_the_old_secret_is_refused_at_once(
    gateway: Run, in_redis: Path, redis_url: str
) -> None:
    made = gateway("keys", "create", "--config", in_redis, "--tenant", "acme", "--id", "acme-2")

    result = gateway("keys", "rotate", "--id", "acme-2", "--config", in_redis, "--grace", "0s")

    assert key_of(redis_url, secret_of(made, "acme-2")) is None
    assert key_of(redis_url, secret_of(result, "acme-2")) == "acme-2"
    assert result.stdout.endswith("The old one is refused from now on.\n")


# revoke


@pytest.mark.parametrize("named", [["acme-2"], ["--id", "acme-2"]])
def test_a_revoked_key_is_refused(gateway: Run, in_redis: Path, redis_url: str, named: list[str]) -> None:
    made = gateway("keys", "create", "--config", in_redis, "--tenant", "acme", "--id", "acme-2")

    result = gateway("keys", "revoke", *named, "--config", in_redis)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Key acme-2 of tenant acme is revoked since 2")
    assert key_of(redis_url, secret_of(made, "acme-2")) is None


@pytest.mark.parametrize("command", ["rotate", "revoke"])
@pytest.mark.parametrize("named", [[], ["acme-1", "--id", "acme-1"], [""]])
def test_exactly_one_key_has_to_be_named(gateway: Run, good: Path, command: str, named: list[str]) -> None:
    result = gateway("keys", command, "--config", good, *named)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Name one key, as ID or with --id" in result.stderr


@pytest.mark.parametrize("store", ["good", "in_redis"])
@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("rotate", "add a second key of its tenant, which gateway keys create makes"),
        ("revoke", "delete its entry"),
    ],
)
def test_how_a_key_of_the_file_is_changed_is_explained(
    gateway: Run, request: pytest.FixtureRequest, store: str, command: str, remedy: str
) -> None:
    path = request.getfixturevalue(store)
    of_file = gateway("keys", command, "acme-1", "--config", path)
    of_nobody = gateway("keys", command, "nobody", "--config", path)

    assert (of_file.exit_code, of_file.stdout) == (2, "")
    assert f'Key "acme-1" is kept in the configuration file, not here: {remedy}' in of_file.stderr
    assert (of_nobody.exit_code, of_nobody.stdout) == (2, "")
    assert 'There is no key "nobody"' in of_nobody.stderr


# list


@pytest.fixture
def three_keys(gateway: Run, in_redis: Path) -> Path:
    gateway("keys", "create", "--config", in_redis, "--tenant", "acme", "--id", "acme-2")
    gateway("keys", "revoke", "acme-2", "--config", in_redis)
    ends = ("--expires", "2099-01-31")
    gateway("keys", "create", "--config", in_redis, "--tenant", "acme", "--id", "acme-3", *ends)
    return in_redis


def test_keys_of_file_and_redis_are_listed_in_columns_for_programs(gateway: Run, three_keys: Path) -> None:
    result = gateway("keys", "list", "--config", three_keys)

    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["id", "tenant", "state", "expires", "source"],
        ["acme-1", "acme", "active", "never", "file"],
        ["acme-2", "acme", "revoked", "never", "redis"],
        ["acme-3", "acme", "active", "2099-01-31T00:00:00Z", "redis"],
    ]
    assert sha256(KEY) not in result.stdout
    starts = {re.search(r"file|redis|source", line) for line in result.stdout.splitlines()}
    assert len({found.start() for found in starts if found}) == 1


def test_on_a_terminal_keys_are_a_table(
    gateway: Run, three_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")

    result = gateway("keys", "list", "--config", three_keys)

    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    assert "┃ id " in plain
    assert re.search(r"│ acme-3 +│ acme +│ active +│ 2099-01-31T00:00:00Z +│ redis +│", plain)


def test_keys_are_listed_as_json(gateway: Run, three_keys: Path) -> None:
    listed = json.loads(gateway("keys", "list", "--config", three_keys, "--json").stdout)

    assert [(of["id"], of["state"]) for of in listed] == [
        ("acme-1", "active"),
        ("acme-2", "revoked"),
        ("acme-3", "active"),
    ]
    assert listed[0] == {
        "id": "acme-1",
        "tenant": "acme",
        "state": "active",
        "created_at": None,
        "expires_at": None,
        "source": "file",
    }
    assert re.fullmatch(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", listed[1]["created_at"])
    assert listed[2]["expires_at"] == "2099-01-31T00:00:00Z"


def test_only_one_tenants_keys_are_listed_if_so_wanted(gateway: Run, good: Path) -> None:
    assert len(gateway("keys", "list", "--config", good, "--tenant", "acme").stdout.splitlines()) == 2
    assert len(gateway("keys", "list", "--config", good, "--tenant", "b").stdout.splitlines()) == 1
    assert gateway("keys", "list", "--config", good, "--tenant", "b", "--json").stdout == "[]\n"


# admin


@pytest.mark.parametrize(
    ("present", "place"),
    [
        ("", "and restart the gateway"),
        (f'[admin]\nkey_sha256 = "{"ab" * 32}"\n', "in place of the key_sha256"),
    ],
)
def test_the_admin_apis_key_is_made_and_its_hash_fits_the_configuration(
    gateway: Run, good: Path, present: str, place: str
) -> None:
    good.write_text(ANY_PORT + GOOD + present, encoding="utf-8")

    result = gateway("keys", "admin", "--config", good)

    secret = secret_of(result, "admin")
    settings = Settings.model_validate(tomllib.loads(result.stdout[result.stdout.index("[admin]") :]))
    assert settings.admin.key_sha256 == sha256(secret)
    assert place in result.stdout
    assert gateway("keys", "admin", "--config", good).stdout != result.stdout


# what goes wrong

COMMANDS = [
    ["create", "--tenant", "acme"],
    ["list"],
    ["rotate", "acme-2"],
    ["revoke", "acme-2"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_redis_that_is_away_is_an_error_that_names_the_setting(
    gateway: Run, away: Path, command: list[str]
) -> None:
    result = gateway("keys", *command, "--config", away)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Redis does not answer as it should (ConnectionError: ")
    assert "store.url" in result.stderr


def test_as_a_program_it_tells_that_in_one_line_without_the_password(away: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "gateway", "keys", "list", "--config", away],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "hunter2" not in line


def test_the_admin_apis_key_in_the_environment_is_no_unknown_setting(
    gateway: Run, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_ADMIN_KEY", "sk-admin-hush")

    assert gateway("keys", "list", "--config", good).exit_code == 0
