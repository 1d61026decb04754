"""The command line, run as a program."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.workers.conftest import DEADLINE_S, ONE_WORKER, FakeVllm, Fleets, free_port, has_ended
from workers.__main__ import main


def fleet_of_fakes(fleets: Fleets, fake_vllm: FakeVllm, *behaviours: str) -> Path:
    """A fleet file of fake workers w0, w1, … with these behaviours."""
    tables = ""
    for number, behaviour in enumerate(behaviours):
        variables = fake_vllm.environment(f"w{number}", behaviour)
        env = ", ".join(f'{name} = "{value}"' for name, value in variables.items())
        tables += f"""
            [[workers]]
            id = "w{number}"
            model = "Qwen/Qwen2.5-7B-Instruct"
            port = {free_port()}
            gpus = [{number}]
            vllm = "{fake_vllm.executable}"
            env = {{ {env} }}
        """
    return fleets.file(tables)


@contextmanager
def up(fleet: Path, logs: Path) -> Iterator["subprocess.Popen[str]"]:
    """`workers up` as a process; killed with its pipes closed if the test leaves it running."""
    command = [sys.executable, "-m", "workers", "up", "--fleet", str(fleet), "--logs", str(logs)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: "subprocess.Popen[str]", word: str) -> str:
    """The first line of output that has the word."""
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    raise AssertionError(f"{word!r} never came")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_up_ends_with_status_0_on_a_signal_and_leaves_no_process(
    fleets: Fleets, fake_vllm: FakeVllm, tmp_path: Path, number: signal.Signals
) -> None:
    with up(fleet_of_fakes(fleets, fake_vllm, "healthy"), tmp_path / "logs") as process:
        assert "w0" in read_until(process, "healthy")
        process.send_signal(number)
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, "")
    assert [line.split()[3] for line in output.splitlines()] == ["stopping", "stopped"]


def test_up_killed_outright_takes_its_workers_and_their_children_with_it(
    fleets: Fleets, fake_vllm: FakeVllm, tmp_path: Path
) -> None:
    with up(fleet_of_fakes(fleets, fake_vllm, "stubborn", "healthy"), tmp_path / "logs") as process:
        read_until(process, "healthy")
        read_until(process, "healthy")
        os.kill(process.pid, signal.SIGKILL)
        for pid in (*fake_vllm.lives("w0")[0], *fake_vllm.lives("w1")[0]):
            assert has_ended(pid)


def test_up_shows_the_end_of_the_log_of_a_worker_that_does_not_start(
    fleets: Fleets, fake_vllm: FakeVllm, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    with up(fleet_of_fakes(fleets, fake_vllm, "crash"), logs) as process:
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert errors.splitlines() == [
        "  ValueError: no such model",
        f"w0 exited with status 1; above is the end of {logs / 'w0.log'}",
    ]


def test_up_refuses_a_fleet_before_it_starts_anything(
    fleets: Fleets, fake_vllm: FakeVllm, tmp_path: Path
) -> None:
    fleet = fleets.file(ONE_WORKER + 'gpu_memory_gib = 8\nvllm = "/nonexistent"')
    with up(fleet, tmp_path / "logs") as process:
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, output) == (2, "")
    assert errors.startswith('workers[0].model = "Qwen/Qwen2.5-7B-Instruct": 14.2 GiB of weights')


def test_plan_prints_each_command_and_its_memory(fleets: Fleets) -> None:
    result = CliRunner().invoke(main, ["plan", "--fleet", str(fleets.file(ONE_WORKER))])
    assert result.exit_code == 0
    assert "vllm serve Qwen/Qwen2.5-7B-Instruct \\\n" in result.stdout
    assert "#   KV tokens        95,008\n" in result.stdout


def test_plan_lists_every_problem_and_exits_with_2(fleets: Fleets) -> None:
    fleet = fleets.file(ONE_WORKER + 'dtype = "int3"\nmax_num_seqs = 0\n')
    result = CliRunner().invoke(main, ["plan", "--fleet", str(fleet)])
    assert result.exit_code == 2
    assert result.stdout == ""
    first, second, count = result.stderr.splitlines()
    assert first.startswith('workers[0].dtype = "int3": ')
    assert second.startswith("workers[0].max_num_seqs = 0: ")
    assert count == "2 problems; nothing was started"


@pytest.mark.parametrize("command", [[], ["plan"], ["up"]])
def test_every_command_has_a_help_text(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "fleet" in result.stdout
