"""Does the README's first command start everything, ask, explain what is wrong and leave nothing behind?

The gateway and the workers are fakes in processes of their own; the question goes through the real SDK.
"""

import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy import bootstrap, demo, fleets, services
from tests.ports import free_ports
from workers.cpu import CpuEnvironment

FAKE = Path(__file__).with_name("fake_program.py")


@dataclass(frozen=True)
class Stage:
    """Where a demo runs in a test."""

    place: Path
    port: int
    worker_port: int

    @property
    def arguments(self) -> list[str]:
        ports = ["--port", str(self.port), "--worker-port", str(self.worker_port)]
        return [*ports, "--cache", str(self.place)]

    @property
    def journal(self) -> list[str]:
        file = self.place / "journal"
        return file.read_text().splitlines() if file.exists() else []

    def nothing_runs(self) -> bool:
        ports = [self.port, self.port + 1, self.worker_port, self.worker_port + 1]
        return all(map(services.port_is_free, ports))


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Everything is installed, with fakes for the project's two programs; there are no GPUs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("workers", "gateway"):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" {name} "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    monkeypatch.setenv("FAKE_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setattr(bootstrap, "ensure_environment", lambda extra, detail: programs / "python")
    installed = CpuEnvironment(python=tmp_path / "python", model=tmp_path / "model")
    monkeypatch.setattr(demo, "install", lambda cache, model, steps: installed)
    monkeypatch.setattr(fleets, "gpu_memories_mib", list)
    monkeypatch.setattr(services, "POLL_S", 0.01)
    first = free_ports(4)[0]
    return Stage(tmp_path, port=first, worker_port=first + 2)


def test_smoke_run_streams_an_answer_and_ends_well(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--smoke", *stage.arguments]) == 0
    assert "What is the capital of France?\n    Paris\n" in capfd.readouterr().out
    assert stage.nothing_runs()


def test_with_simulated_workers_the_question_is_answered_without_a_model(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "install", lambda *arguments: pytest.fail("nothing is to be installed"))
    monkeypatch.setattr(fleets, "SIMULATED_WORKERS", 2)
    gateway = stage.place / "bin" / "gateway"
    gateway.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
    assert demo.main(["--simulate", "--smoke", *stage.arguments]) == 0
    said = capfd.readouterr().out
    assert "2 simulated workers with qwen2.5-7b" in said
    answer = said.partition("What is the capital of France?\n    ")[2].partition("\n")[0]
    assert answer.strip(), "some tokens came"
    assert stage.nothing_runs()


def test_gateway_is_stopped_before_the_workers_it_needs(stage: Stage) -> None:
    demo.main(["--smoke", *stage.arguments])
    assert stage.journal == ["workers started", "gateway started", "gateway stopped", "workers stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_demo_stays_until_a_signal_and_leaves_nothing_behind(
    stage: Stage,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    watched: list[str] = []

    def signalled(running: Sequence[services.Service]) -> None:
        watched.extend(service.name for service in running)
        signal.raise_signal(number)

    monkeypatch.setattr(services, "watch", signalled)
    assert demo.main(stage.arguments) == 130
    assert watched == ["workers", "gateway"]
    assert stage.nothing_runs()
    said = capfd.readouterr().out
    assert f"curl -N http://127.0.0.1:{stage.port}/v1/chat/completions" in said
    assert f"http://127.0.0.1:{stage.port + 1}/metrics" in said
    assert said.endswith("Stopped; nothing is left running.\n")


def test_signal_while_installing_ends_the_demo(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "install", lambda *arguments: signal.raise_signal(signal.SIGTERM))
    assert demo.main(["--smoke", *stage.arguments]) == 130
    assert stage.journal == []


def test_taken_ports_are_all_named_before_anything_starts(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        socket.create_server(("127.0.0.1", stage.port + 1)),
        socket.create_server(("127.0.0.1", stage.worker_port)),
    ):
        assert demo.main(["--smoke", *stage.arguments]) == 1
    said = capfd.readouterr().err
    assert f"{stage.port + 1} (choose another with --port)" in said
    assert f"{stage.worker_port} (choose another with --worker-port)" in said
    assert stage.journal == []


def test_workers_that_end_are_explained_by_their_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "workers")
    assert demo.main(["--smoke", *stage.arguments]) == 1
    said = capfd.readouterr().err
    assert "workers ended with status 1" in said
    assert "no such model" in said


def test_unanswered_question_is_a_failure(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "gateway")
    assert demo.main(["--smoke", *stage.arguments]) == 1
    said = capfd.readouterr().err
    assert "401" in said
    assert f"see the logs in {stage.place}/demo-{stage.port}" in said
    assert stage.nothing_runs()


def test_low_memory_is_warned_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleets, "memory_warning", lambda: "little memory")
    demo.main(["--smoke", *stage.arguments])
    assert "    little memory\n" in capfd.readouterr().out


def test_cards_get_a_worker_each_and_the_gpu_build_of_vllm(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    extras: list[str] = []

    def ensure_environment(extra: str, detail: object) -> Path:
        extras.append(extra)
        return stage.place / "bin" / "python"

    monkeypatch.setattr(bootstrap, "ensure_environment", ensure_environment)
    monkeypatch.setattr(fleets, "gpu_memories_mib", lambda: [81_559, 81_559])
    assert demo.main(["--smoke", *stage.arguments]) == 0
    assert extras == ["bench,gpu"]
    assert "gpus = [1]" in (stage.place / f"demo-{stage.port}" / "fleet.toml").read_text()
    assert demo.main(["--smoke", "--cpu", *stage.arguments]) == 0
    assert extras[1:] == ["bench"]
