"""Is there a Redis of the benchmark's own, and is it gone afterwards?"""

import tempfile
from pathlib import Path

import pytest
import redis

from benchmarks.limits import server
from benchmarks.limits.server import running_redis
from deploy.services import ServiceFailed


def test_it_runs_while_it_is_wanted_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with running_redis() as running:
        with redis.Redis.from_url(running.url) as client:
            assert client.ping()
            assert client.config_get("save") == {"save": ""}
            assert client.config_get("appendonly") == {"appendonly": "no"}
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
        assert running.version().split(".")[0].isdigit()
        assert list(tmp_path.iterdir()) != []
    assert running.service.process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_its_processor_time_grows_with_its_work() -> None:
    with running_redis() as running, redis.Redis.from_url(running.url) as client:
        began_s = running.cpu_s()
        while running.cpu_s() < began_s + 0.02:
            client.eval("for _ = 1, 100000 do redis.sha1hex('') end", 0)
        assert running.cpu_s() - began_s < 60


def test_a_redis_that_does_not_start_is_told_with_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "COMMAND", (*server.COMMAND, "--no-such-option", "1"))
    told = r"redis-server ended with status 1(?s:.)*no-such-option"
    with pytest.raises(ServiceFailed, match=told), running_redis():
        pass


def test_a_redis_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "COMMAND", ("sh", "-c", "exec sleep 60"))
    monkeypatch.setattr(server, "START_LIMIT_S", 0.1)
    with pytest.raises(ServiceFailed, match="did not answer within 0 s"), running_redis():
        pass
