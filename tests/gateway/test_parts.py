"""Do settings become the parts they describe?"""

import json
import ssl
from typing import Any

import pytest

from gateway import parts
from gateway.auth import Authenticator
from gateway.configuration import parse
from gateway.crew import Crew
from gateway.errors import Unauthorized
from gateway.fleet import Fleet
from gateway.intake import Intake
from gateway.model import Endpoint, Incoming
from gateway.outbox import write_now
from gateway.settings import Settings
from tests.conftest import KEY, MODEL, configuration
from tests.gateway.test_model import Clock, caller, job

BEARER = {b"authorization": f"Bearer {KEY}".encode()}
WORKER = {"id": "w0", "url": "http://127.0.0.1:9", "model": MODEL, "max_concurrency": 7}


def settings_of(**sections: Any) -> Settings:
    return parse(configuration(workers=[WORKER], **sections), {})


def authenticator(settings: Settings) -> Authenticator:
    return parts.authenticator(settings, None, b"secret")


async def test_a_key_of_the_file_opens_its_tenant_and_no_other_key_anything() -> None:
    auth = authenticator(settings_of())
    caller = auth.recognise(BEARER)
    assert caller is not None
    assert (caller.tenant.id, caller.key_id) == ("acme", "acme-1")
    assert auth.recognise({}) is None
    with pytest.raises(Unauthorized):
        await auth.identify({})


def test_where_no_key_is_required_strangers_are_the_tenant_of_that_name() -> None:
    settings = settings_of(auth={"required": False}, tenants=[{"id": "acme"}])
    stranger = authenticator(settings).recognise({})
    assert stranger is not None
    assert stranger.tenant.id == "anonymous"
    named = [{"id": "acme"}, {"id": "anonymous", "max_concurrency": 3}]
    stranger = authenticator(settings_of(auth={"required": False}, tenants=named)).recognise({})
    assert stranger is not None
    assert stranger.tenant.max_concurrency == 3


def test_cached_prompts_are_kept_apart_by_a_secret_that_is_new_at_each_start_unless_named() -> None:
    assert parts.salt_secret(settings_of()) != parts.salt_secret(settings_of())
    assert parts.salt_secret(settings_of(auth={"cache_salt_secret": "s3cret"})) == b"s3cret"


def staffed(settings: Settings) -> tuple[Fleet, Crew, Intake]:
    """With the workers of the file."""
    fleet, models = parts.fleet(settings, Clock(), None), parts.catalogue(settings)
    intake = parts.intake(settings, models)
    crew = parts.crew(settings, fleet, models, intake, write_now)
    crew.take("file", parts.workers(settings))
    return fleet, crew, intake


def fleet_of(settings: Settings) -> Fleet:
    return staffed(settings)[0]


def test_a_fleet_has_the_workers_of_the_file() -> None:
    assert [(of.id, of.configured, of.limit) for of in fleet_of(settings_of()).members.values()] == [
        ("w0", MODEL, 7)
    ]


def test_a_limit_is_sought_unless_the_file_says_that_it_is_the_most() -> None:
    many = [WORKER | {"max_concurrency": 200}]
    for is_adaptive, limit in ((True, 128), (False, 200)):
        raw = configuration(workers=many, routing={"adaptive_limit": is_adaptive})
        assert fleet_of(parse(raw, {})).members["w0"].limit == limit


def test_a_fleet_takes_as_many_long_prompts_at_once_as_the_file_says() -> None:
    fleet = fleet_of(settings_of(routing={"max_long_prefills": 2}))
    fleet.members["w0"].up = True
    for takes_long in (True, False):
        fleet.occupy("w0", job(model=MODEL, is_long=True))
        assert fleet.takes_long(MODEL) == takes_long


@pytest.mark.parametrize(
    ("workers", "prefix_affinity", "has_chain"), [(2, True, True), (2, False, False), (1, True, False)]
)
def test_prompts_are_followed_where_there_is_a_choice_of_workers_that_cache_them(
    workers: int, prefix_affinity: bool, has_chain: bool
) -> None:
    raw = configuration(
        workers=[WORKER | {"id": f"w{n}", "url": f"http://127.0.0.1:{9 + n}"} for n in range(workers)],
        routing={"prefix_affinity": prefix_affinity},
    )
    _, _, intake = staffed(parse(raw, {}))
    body = json.dumps({"model": MODEL, "prompt": "x" * 2000}).encode()
    incoming = Incoming("r", Endpoint.COMPLETIONS, {})
    asked = intake.read(incoming, body, caller())
    assert (asked.chain is not None) == has_chain


@pytest.mark.parametrize(
    ("tokens", "bucket", "is_long"), [(100, 2, True), (99, 1, True), (49, 1, False), (9, 0, False)]
)
def test_the_file_tells_buckets_and_which_prompts_are_long(tokens: int, bucket: int, is_long: bool) -> None:
    settings = settings_of(routing={"bucket_edges": [10, 100], "long_prompt_tokens": 50})
    body = json.dumps({"model": MODEL, "prompt": [1] * tokens}).encode()
    incoming = Incoming("r", Endpoint.COMPLETIONS, {})
    asked = parts.intake(settings, parts.catalogue(settings)).read(incoming, body, caller())
    assert (asked.bucket, asked.is_long) == (bucket, is_long)


def test_a_workers_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("W0_KEY", "secret")
    config = configuration(workers=[WORKER | {"api_key_env": "W0_KEY"}])
    [worker] = parts.workers(parse(config, {"W0_KEY": "secret"}))
    assert parts.credentials(worker) == {"authorization": "Bearer secret"}
    assert parts.credentials(parts.workers(settings_of())[0]) == {}


def test_certificates_are_read_only_for_workers_that_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def reading(settings: Settings) -> ssl.SSLContext:
        read.append(1)
        return ssl.create_default_context()

    monkeypatch.setattr(parts, "tls", reading)
    staffed(settings_of())
    assert read == []
    two = [WORKER | {"id": f"w{n}", "url": f"https://127.0.0.1:{9 + n}"} for n in range(2)]
    staffed(parse(configuration(workers=two), {}))
    assert read == [1]
