"""Does each kind of value take what it should, and nothing else?"""

from datetime import UTC, datetime

import pytest

from gateway.settings import (
    KeySettings,
    ModelSettings,
    Routing,
    Section,
    Store,
    TenantSettings,
    WorkerSettings,
)
from tests.gateway.settings.accepting import accepts


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


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "redis://127.0.0.1:6379/0",
        "redis://redis",
        "redis://[::1]:6379/0",
        "rediss://user:p%40ss@redis.example:6380/3",
        "redis+sentinel://s1:26379,s2:26379/mymaster/0",
        "rediss+sentinel://:secret@s1:26379/mymaster",
        "unix:///run/redis.sock?db=2",
    ],
)
def test_a_store_is_in_memory_or_in_redis(url: str) -> None:
    assert accepts(Store, url=url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory://h",
        "redis://",
        "redis://a,b",
        "redis://h:1/0?password=x",
        "redis+sentinel://s1:26379",
        "redis+sentinel://s1/mymaster",
        "unix://",
        "http://h",
        "redis://h/x",
    ],
)
def test_an_address_that_is_no_store_is_refused(url: str) -> None:
    assert not accepts(Store, url=url)


def test_a_time_without_a_timezone_is_refused() -> None:
    assert accepts(KeySettings, expires_at=datetime(2027, 1, 31, tzinfo=UTC))
    assert not accepts(KeySettings, expires_at=datetime(2027, 1, 31))
    assert not accepts(KeySettings, expires_at="2027-01-31T00:00:00Z")


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
