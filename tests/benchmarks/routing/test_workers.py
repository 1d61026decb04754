"""Are workers started fresh, asked right, killed and brought back, and is nothing left of them?"""

import asyncio
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from benchmarks.routing.workers import Engines, Workers, free_ports, running_workers
from deploy.services import ServiceFailed
from tests.fakes import FakeWorker, Received, Reply
from tests.vllm_answers import response_head

FAST = Engines(count=2, speed=50.0)


def complete(url: str, tokens: int) -> None:
    body = {"model": FAST.model, "prompt": "a text", "max_tokens": tokens, "ignore_eos": True}
    httpx.post(f"{url}/v1/completions", json=body, trust_env=False).raise_for_status()


def test_our_workers_are_told_apart_count_tokens_and_end_with_the_block(tmp_path: Path) -> None:
    with running_workers(FAST, tmp_path) as workers:
        assert len(set(workers.urls)) == 2
        before = workers.generated_tokens()
        complete(workers.urls[0], 3)
        complete(workers.urls[1], 4)
        generated, late_s = workers.generated_tokens(), workers.late_s()
        processes = [each.service.process for each in workers.processes]
        workers.check()

    assert (before, generated) == (0, 7)
    assert late_s > 0
    assert [process.returncode for process in processes] == [0, 0]


def test_a_worker_that_was_killed_comes_back_on_its_port_with_nothing_done(tmp_path: Path) -> None:
    with running_workers(FAST, tmp_path) as workers:
        complete(workers.urls[0], 3)
        workers.kill(0)
        with pytest.raises(httpx.ConnectError):
            complete(workers.urls[0], 3)
        complete(workers.urls[1], 2)
        workers.relaunch(0)
        workers.wait_ready(0)
        complete(workers.urls[0], 5)

        assert workers.generated_tokens() == 5 + 2


def test_a_worker_that_ended_by_itself_is_noticed(tmp_path: Path) -> None:
    with running_workers(FAST, tmp_path) as workers:
        workers.processes[1].service.process.kill()
        workers.processes[1].service.process.wait()
        with pytest.raises(ServiceFailed, match="w1 ended"):
            workers.check()


def test_the_options_reach_the_engine(tmp_path: Path) -> None:
    with running_workers(Engines(1, long_prefill_token_threshold=7, model="other"), tmp_path) as workers:
        command = workers.processes[0].service.process.args
        listed = httpx.get(f"{workers.urls[0]}/v1/models", trust_env=False).json()

    assert isinstance(command, list)
    options = dict(pairwise(command))
    assert options["--long-prefill-token-threshold"] == "7"
    assert [card["id"] for card in listed["data"]] == ["other"]


async def test_workers_of_others_are_asked_and_left_alone(tmp_path: Path) -> None:
    async def metrics(request: Received, reply: Reply) -> None:
        text = b'# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{engine="0"} 40\n'
        await reply.send(response_head(200, {"content-length": str(len(text))}) + text)

    async with FakeWorker(probe=metrics) as one, FakeWorker(probe=metrics) as two:
        with running_workers(Engines(urls=(one.url, two.url)), tmp_path) as workers:
            generated = await asyncio.to_thread(workers.generated_tokens)
            late_s = await asyncio.to_thread(workers.late_s)
            workers.check()

    assert (generated, late_s) == (80, 0)
    assert workers == Workers((one.url, two.url), [])


def test_free_ports_are_different_ones() -> None:
    assert len(set(free_ports(20))) == 20
