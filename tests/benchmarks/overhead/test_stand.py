"""Is what a load costs measured from quiet to quiet, and are the workers' counts its own?"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from benchmarks.limits.server import RedisServer
from benchmarks.overhead import stand
from benchmarks.overhead.contenders import Target
from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.processors import CpuTime
from benchmarks.overhead.stand import Spent, Workers, metered, running_workers
from benchmarks.overhead.worker import Counts
from deploy.services import Service, ServiceFailed

PATH = "/v1/chat/completions"
NOBODY = cast(Service, None)


def worked(seconds: float) -> None:
    """Use so much of the processor."""
    began_s = os.times().user
    while os.times().user - began_s < seconds:
        pass


def ourselves(check: Any = lambda: None) -> Service:
    """As if this process was the gateway."""
    return cast(Service, SimpleNamespace(process=SimpleNamespace(pid=os.getpid()), check=check))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with running_workers(tmp_path_factory.mktemp("workers")) as started:
        yield started


class Telling(Workers):
    """Workers that tell these counts, one after the other, and then the last again and again."""

    def __init__(self, *told: Counts) -> None:
        super().__init__(NOBODY, [], cast(httpx.Client, None))
        self._told = list(told)

    def counts(self) -> Counts:
        return self._told.pop(0) if len(self._told) > 1 else self._told[0]


def test_the_workers_are_several_to_whom_one_pace_and_one_count_belong(workers: Workers) -> None:
    before = workers.counts()
    workers.pace(0.0)
    for url in workers.urls:
        asked = {"stream": True, "max_tokens": 3}
        assert httpx.post(url + PATH, json=asked, trust_env=False).status_code == 200

    after = workers.settled()
    assert len(set(workers.urls)) == 2
    assert (after.requests - before.requests, after.chunks - before.chunks) == (2, 6)


def test_it_is_quiet_when_nothing_changes_and_no_stream_is_open() -> None:
    last = Counts(requests=3, whole_streams=1)
    told = [Counts(requests=1), Counts(requests=2), Counts(requests=3, open_streams=1), last]
    assert Telling(*told).settled() == last


def test_a_stream_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand, "SETTLE_LIMIT_S", 0.0)
    with pytest.raises(Invalid, match="1 streams are still open"):
        Telling(Counts(open_streams=1)).settled()


def test_only_what_was_spent_and_seen_meanwhile_counts(workers: Workers) -> None:
    def load() -> str:
        httpx.post(workers.urls[0] + PATH, json={}, trust_env=False)
        worked(0.1)
        return "its result"

    worked(0.1)  # before
    result, spent = metered(Target("", "", ourselves()), workers, load)

    assert result == "its result"
    assert spent.seen == Counts(requests=1, plain=1)
    assert spent.gateway is not None
    assert spent.gateway.user_s >= 0.08  # told in hundredths of a second
    assert spent.redis_s == 0


def test_a_gateway_that_has_ended_is_told(workers: Workers) -> None:
    def check() -> None:
        raise ServiceFailed("it ended")

    with pytest.raises(ServiceFailed, match="it ended"):
        metered(Target("", "", ourselves(check)), workers, lambda: None)


def test_redis_has_a_time_of_its_own(workers: Workers) -> None:
    times = iter((2.0, 5.0))
    server = cast(RedisServer, SimpleNamespace(cpu_s=lambda: next(times)))
    _, spent = metered(Target("", "", redis_server=server), workers, lambda: None)
    assert (spent.redis_s, spent.gateway) == (3.0, None)


def test_a_cost_is_that_of_one_unit() -> None:
    spent = Spent(CpuTime(0.75, 0.25), 0.1, Counts(requests=1003))
    assert spent.cost(1000, seconds=2.0) == {
        "requests_seen": 1003,
        "cpu_us": pytest.approx(1000),
        "user_us": pytest.approx(750),
        "system_us": pytest.approx(250),
        "redis_us": pytest.approx(100),
        "busy": pytest.approx(0.5),
    }


def test_without_a_gateway_nothing_costs_anything() -> None:
    assert Spent(None, 0.0, Counts(requests=5)).cost(5, seconds=1.0) == {"requests_seen": 5}


def test_workers_that_do_not_start_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand, "WORKERS", 0)
    with pytest.raises(ServiceFailed, match=r"the workers ended with status 2"), running_workers(tmp_path):
        pass
