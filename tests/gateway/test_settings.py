"""Does each setting take what it should, and say what it is?"""

import math
from typing import get_type_hints

import pytest
from pydantic import SecretStr, ValidationError

from gateway.configuration import SECTIONS, TABLES
from gateway.settings import (
    Auth,
    KeySettings,
    ModelSettings,
    Routing,
    Section,
    Server,
    Settings,
    Store,
    TenantSettings,
    Upstream,
    WorkerSettings,
)

CLASSES = [*SECTIONS.values(), *TABLES.values()]
FIELDS = [(kind, name) for kind in CLASSES for name in kind.model_fields]
NUMBERS = [(kind, name) for kind, name in FIELDS if kind.model_fields[name].annotation is float]


def accepts(kind: type[Section], **fields: object) -> bool:
    """Whether these values pass; required fields that are not given do not count."""
    try:
        kind.model_validate(fields, strict=True)
    except ValidationError as error:
        return not {details["loc"][0] for details in error.errors()} & fields.keys()
    return True


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda value: getattr(value, "__name__", value))
def test_a_setting_says_what_it_is_in_a_sentence(kind: type[Section], name: str) -> None:
    description = kind.model_fields[name].description

    assert description
    assert description.endswith(".")


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda value: getattr(value, "__name__", value))
def test_a_default_is_within_its_own_bounds(kind: type[Section], name: str) -> None:
    field = kind.model_fields[name]

    assert field.is_required() or accepts(kind, **{name: field.get_default()})


@pytest.mark.parametrize(("kind", "name"), NUMBERS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1])
def test_no_number_is_without_end_or_negative(kind: type[Section], name: str, value: float) -> None:
    assert not accepts(kind, **{name: value})


def test_a_duration_has_its_unit_in_its_name() -> None:
    shares = {"tenant_queue_share", "weight"}

    assert all(name.endswith("_s") for _, name in NUMBERS if name not in shares)


def test_settings_cannot_be_changed_nor_grow() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Server().port = 1
    assert not accepts(Server, prot=1)


def test_every_section_and_table_is_known_by_its_class() -> None:
    assert {*SECTIONS, *TABLES} == get_type_hints(Settings).keys() - {"model_config"}
    assert set(TABLES) == {"models", "workers", "tenants", "keys"}


def test_a_secret_shows_itself_nowhere() -> None:
    assert "hunter2" not in repr(Auth(cache_salt_secret=SecretStr("hunter2")))


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://127.0.0.1:8101", "http://127.0.0.1:8101"),
        ("http://127.0.0.1:8101/", "http://127.0.0.1:8101"),
        ("https://worker.example", "https://worker.example"),
        ("http://[::1]:8101/pool/a", "http://[::1]:8101/pool/a"),
    ],
)
def test_a_worker_url_is_kept_without_its_last_slash(url: str, kept: str) -> None:
    assert WorkerSettings(id="w0", url=url, model="m").url == kept


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "127.0.0.1:8101",
        "unix:///run/vllm.sock",
        "http://:8101",
        "http://h:0",
        "http://h:65536",
        "http://h:port",
        "http://[::1",
        "http://h/a b",
        "http://h/\n",
        "http://wörker",
        "http://@h",
        "http://user:password@h",
        "http://h?a=1",
        "http://h#a",
        "http://h/v1",
        "http://h/prefix/v1/",
    ],
)
def test_what_no_worker_can_be_reached_by_is_refused(url: str) -> None:
    assert not accepts(WorkerSettings, url=url)


@pytest.mark.parametrize("edges", [[], [1], [1024, 8192]])
def test_bucket_edges_rise(edges: list[int]) -> None:
    assert accepts(Routing, bucket_edges=edges)


@pytest.mark.parametrize("edges", [[0], [-1, 5], [5, 5], [8192, 1024], [1.5], ["1024"], 1024])
def test_bucket_edges_that_do_not_rise_are_refused(edges: object) -> None:
    assert not accepts(Routing, bucket_edges=edges)


@pytest.mark.parametrize("url", ["memory://h", "", "redis://127.0.0.1/0", "rediss://127.0.0.1/0"])
def test_the_store_is_in_memory(url: str) -> None:
    assert accepts(Store, url="memory://")
    assert not accepts(Store, url=url)


@pytest.mark.parametrize("url", ["redis://127.0.0.1/0", "rediss://127.0.0.1/0"])
def test_whoever_asks_for_redis_is_told_that_it_is_not_there_yet(url: str) -> None:
    with pytest.raises(ValidationError, match="Redis is not supported yet"):
        Store(url=url)


@pytest.mark.parametrize(
    ("kind", "field", "good", "bad"),
    [
        (WorkerSettings, "id", ["w", "W.0_a-b", "a" * 64], ["", "a" * 65, "a b", "a\n", "é", 'a"', "a/b"]),
        (TenantSettings, "id", ["acme"], ["ac me", ""]),
        (KeySettings, "id", ["acme-1"], ["acme 1", ""]),
        (KeySettings, "tenant", ["acme"], ["ac me", ""]),
        (ModelSettings, "name", ["Qwen/Qwen2.5-7B", "a:b@c"], ["", "a" * 201, "a b", "*", "a\n"]),
        (WorkerSettings, "model", ["Qwen/Qwen2.5-7B"], ["", "*"]),
        (ModelSettings, "aliases", [[], ["gpt-4o"]], [["*"], ["a b"], "gpt-4o"]),
        (TenantSettings, "models", [["*"], ["a/b", "*"], []], [["a*"], [""], "*"]),
        (WorkerSettings, "api_key_env", ["", "W0_KEY", "_k"], ["0K", "sk-live", "A B", "A="]),
        (KeySettings, "sha256", ["0" * 64, "aF" * 32], ["0" * 63, "0" * 65, "g" * 64, "0" * 64 + "\n"]),
    ],
)
def test_a_name_is_safe_wherever_it_is_shown(
    kind: type[Section], field: str, good: list[object], bad: list[object]
) -> None:
    assert all(accepts(kind, **{field: value}) for value in good)
    assert not any(accepts(kind, **{field: value}) for value in bad)


def test_a_hash_is_compared_in_lower_case() -> None:
    assert KeySettings(id="k", tenant="t", sha256="AB" * 32).sha256 == "ab" * 32


def test_idle_connections_are_given_up_before_vllm_closes_them() -> None:
    assert Upstream().idle_s < 5
