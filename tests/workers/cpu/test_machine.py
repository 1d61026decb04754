"""Is a machine that cannot run vLLM told so, and told what to do?"""

import platform
import sys
from pathlib import Path

import pytest

from workers.cpu import machine
from workers.cpu.machine import CannotInstall


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text("model name : some\nflags\t\t: fpu sse4_2 avx avx2 fma\n")
    return path


def pretend(monkeypatch: pytest.MonkeyPatch, system: str, processor: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: processor)


def test_linux_with_avx2_will_do(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "Linux", "x86_64")
    machine.check_processor(cpuinfo)


def test_arm_needs_no_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "Linux", "aarch64")
    machine.check_processor(Path("/nonexistent"))


def test_processor_without_avx2_is_refused(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "Linux", "x86_64")
    cpuinfo.write_text("flags\t\t: fpu sse4_2 avx\n")
    with pytest.raises(CannotInstall, match="AVX2"):
        machine.check_processor(cpuinfo)


@pytest.mark.parametrize(("system", "processor"), [("Darwin", "x86_64"), ("Linux", "riscv64")])
def test_other_systems_and_processors_are_refused(
    system: str, processor: str, cpuinfo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, system, processor)
    with pytest.raises(CannotInstall, match=f"this is {system} on {processor}"):
        machine.check_processor(cpuinfo)


def test_disk_is_measured_where_the_directory_will_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "DISK_BYTES", 1)
    machine.check_disk(tmp_path / "not" / "yet")


def test_short_disk_is_refused_with_both_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DISK_BYTES", 1 << 50)
    with pytest.raises(CannotInstall, match=r"needs 1048576\.0 GiB of disk and [\d.]+ GiB are free"):
        machine.check_disk(tmp_path)


@pytest.mark.parametrize("running", [(3, 11), (3, 14)])
def test_running_python_is_taken_if_vllm_supports_it(running: tuple[int, int]) -> None:
    assert machine.find_python(running, lambda name: "/other") == Path(sys.executable)


@pytest.mark.parametrize("running", [(3, 10), (3, 15)])
def test_newest_supported_python_is_looked_for_otherwise(running: tuple[int, int]) -> None:
    installed = {"python3.12": "/usr/bin/python3.12", "python3.13": "/usr/bin/python3.13"}
    assert machine.find_python(running, installed.get) == Path("/usr/bin/python3.13")


def test_missing_python_is_told_with_what_to_install() -> None:
    with pytest.raises(CannotInstall, match=r"needs Python 3\.11 to 3\.14; this is 3\.15 .*python3\.14"):
        machine.find_python((3, 15), lambda name: None)
