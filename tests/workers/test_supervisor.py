"""Workers run, die, come back and stop, with real processes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from tests.workers.conftest import DEADLINE_S, FakeVllm, Recorder, has_ended
from workers.process import Launch
from workers.supervisor import Pace, StartFailed, Supervisor

BRISK = Pace(health_interval_s=0.02, backoff_first_s=0.01, backoff_max_s=0.02, stop_grace_s=DEADLINE_S)


@asynccontextmanager
async def running(
    launches: Sequence[Launch], recorder: Recorder, pace: Pace = BRISK
) -> AsyncIterator[Supervisor]:
    """A supervisor at work; at the end it is asked to stop and must do so without complaint."""
    supervisor = Supervisor(launches, recorder, pace)
    run = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        supervisor.stop()
        async with asyncio.timeout(DEADLINE_S):
            await run


async def until_healthy(recorder: Recorder, worker_id: str, times: int = 1) -> None:
    await recorder.until(lambda: recorder.states(worker_id).count("healthy") >= times)


async def ask_to_die(launch: Launch) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"{launch.url}/die")


async def test_workers_run_in_groups_of_their_own_and_a_stop_leaves_no_process(
    fake_vllm: FakeVllm, recorder: Recorder
) -> None:
    launches = [fake_vllm.launch("w0", "healthy"), fake_vllm.launch("w1", "healthy")]
    async with running(launches, recorder):
        await until_healthy(recorder, "w0")
        await until_healthy(recorder, "w1")
        for worker in ("w0", "w1"):
            ((own, child),) = fake_vllm.lives(worker)
            assert os.getpgid(own) == own == os.getpgid(child)
    for worker in ("w0", "w1"):
        assert recorder.states(worker) == ["starting", "healthy", "stopping", "stopped"]
        # The fake leaves its child behind when it ends: only the group's end takes that down.
        assert all(has_ended(pid, 0) for pid in fake_vllm.lives(worker)[0])


async def test_a_worker_is_not_healthy_until_it_says_so(fake_vllm: FakeVllm, recorder: Recorder) -> None:
    async with running([fake_vllm.launch("w0", "warming")], recorder):
        # The log is shown after a probe in vain only.
        await recorder.until(lambda: "still warming" in recorder.said)
        await until_healthy(recorder, "w0")


async def test_a_dead_worker_comes_back_and_its_orphans_are_gone_first(
    fake_vllm: FakeVllm, recorder: Recorder
) -> None:
    launch = fake_vllm.launch("w0", "healthy")
    async with running([launch], recorder):
        await until_healthy(recorder, "w0")
        await ask_to_die(launch)
        await recorder.until(lambda: "died" in recorder.states("w0"))
        assert has_ended(fake_vllm.lives("w0")[0][1], 0)
        await until_healthy(recorder, "w0", times=2)
    assert recorder.states("w0") == [
        "starting",
        "healthy",
        "died",
        "starting",
        "healthy",
        "stopping",
        "stopped",
    ]
    assert ("w0", "died", "exited with status 9; starting again in 0.01 s") in recorder.changes


async def test_a_killed_worker_is_reported_with_the_signal(fake_vllm: FakeVllm, recorder: Recorder) -> None:
    async with running([fake_vllm.launch("w0", "healthy")], recorder):
        await until_healthy(recorder, "w0")
        os.kill(fake_vllm.lives("w0")[0][0], signal.SIGKILL)
        await until_healthy(recorder, "w0", times=2)
    assert ("w0", "died", "was killed by signal 9 (Killed); starting again in 0.01 s") in recorder.changes


async def test_a_restart_that_fails_is_tried_again(fake_vllm: FakeVllm, recorder: Recorder) -> None:
    launch = fake_vllm.launch("w0", "once")
    async with running([launch], recorder):
        await until_healthy(recorder, "w0")
        await ask_to_die(launch)
        await until_healthy(recorder, "w0", times=2)
    assert len(fake_vllm.lives("w0")) == 3
    assert ("w0", "died", "exited with status 1; starting again in 0.02 s") in recorder.changes


async def test_a_worker_that_was_well_for_long_restarts_quickly_again(
    fake_vllm: FakeVllm, recorder: Recorder
) -> None:
    launch = fake_vllm.launch("w0", "healthy")
    async with running([launch], recorder, replace(BRISK, settled_s=0)):
        for lives in (1, 2, 3):
            await until_healthy(recorder, "w0", times=lives)
            await ask_to_die(launch)
        await until_healthy(recorder, "w0", times=4)
    pauses = {detail.rsplit("in ", 1)[1] for _, state, detail in recorder.changes if state == "died"}
    assert pauses == {"0.01 s"}


async def test_a_worker_that_crashes_on_its_first_start_ends_the_fleet(
    fake_vllm: FakeVllm, recorder: Recorder
) -> None:
    launches = [fake_vllm.launch("w0", "healthy"), fake_vllm.launch("w1", "crash")]
    with pytest.raises(StartFailed, match=r"^w1 exited with status 1$") as failed:
        await Supervisor(launches, recorder, BRISK).run()
    assert "ValueError: no such model" in failed.value.launch.log.read_text()
    assert recorder.states("w0")[-1] == "stopped"


async def test_a_worker_that_is_never_healthy_ends_the_fleet(fake_vllm: FakeVllm, recorder: Recorder) -> None:
    with pytest.raises(StartFailed, match=r"^w0 was not healthy within 0\.3 s$"):
        await Supervisor([fake_vllm.launch("w0", "mute", start_limit_s=0.3)], recorder, BRISK).run()
    assert recorder.states("w0") == ["starting", "died", "stopped"]


async def test_a_worker_is_stopped_while_it_starts_and_its_log_is_shown_meanwhile(
    fake_vllm: FakeVllm, recorder: Recorder
) -> None:
    async with running([fake_vllm.launch("w0", "mute")], recorder):
        await recorder.until(lambda: "loading weights" in recorder.said)
    assert recorder.states("w0") == ["starting", "stopping", "stopped"]


async def test_a_worker_that_cannot_be_executed_ends_the_fleet(
    fake_vllm: FakeVllm, recorder: Recorder
) -> None:
    launch = replace(fake_vllm.launch("w0", "healthy"), argv=("/nonexistent/vllm",))
    with pytest.raises(StartFailed, match=r"could not be started: .*No such file"):
        await Supervisor([launch], recorder, BRISK).run()


async def test_a_worker_that_ignores_the_stop_is_killed_after_its_time(
    fake_vllm: FakeVllm, recorder: Recorder
) -> None:
    launch = replace(fake_vllm.launch("w0", "stubborn"), shutdown_timeout_s=0)
    async with running([launch], recorder, replace(BRISK, stop_grace_s=0.1)):
        await until_healthy(recorder, "w0")
    assert all(has_ended(pid, 0) for pid in fake_vllm.lives("w0")[0])


async def test_a_second_request_to_stop_does_not_wait(fake_vllm: FakeVllm, recorder: Recorder) -> None:
    async with running([fake_vllm.launch("w0", "stubborn")], recorder) as supervisor:
        await until_healthy(recorder, "w0")
        supervisor.stop()
        await recorder.until(lambda: "stopping" in recorder.states("w0"))
        assert not has_ended(fake_vllm.lives("w0")[0][0], 0)
    assert recorder.states("w0")[-1] == "stopped"


async def test_a_stop_between_two_lives_starts_no_third(fake_vllm: FakeVllm, recorder: Recorder) -> None:
    launch = fake_vllm.launch("w0", "healthy")
    async with running([launch], recorder, replace(BRISK, backoff_first_s=600, backoff_max_s=600)):
        await until_healthy(recorder, "w0")
        await ask_to_die(launch)
        await recorder.until(lambda: "died" in recorder.states("w0"))
    assert recorder.states("w0") == ["starting", "healthy", "died", "stopped"]


def test_the_pause_before_a_restart_doubles_up_to_a_limit() -> None:
    pace = Pace(backoff_first_s=1, backoff_max_s=60)
    assert [pace.backoff_s(deaths) for deaths in (1, 2, 3, 6, 7, 8)] == [1, 2, 4, 32, 60, 60]
