"""Is a start measured to its end, and are failures told?"""

from pathlib import Path

import pytest

from benchmarks.footprint.rig import WorkerPlan, configuration, running_workers
from benchmarks.startup import starts
from benchmarks.startup.starts import import_cpu_s, start
from deploy.services import ServiceFailed


def test_a_start_is_over_when_the_gateway_is_ready(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    with running_workers([WorkerPlan("steady", 0.0)], tmp_path) as urls:
        file.write_text(configuration(urls, 1, "sk-test"), encoding="utf-8")

        found = start(file, tmp_path)

    assert found.cpu_s > 0.01
    assert found.wall_s > 0.01
    assert "worker w0 is up" in (tmp_path / "gateway.log").read_text(encoding="utf-8")


def test_a_gateway_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("[nonsense]", encoding="utf-8")

    with pytest.raises(ServiceFailed, match=r"ended with status 2[\s\S]*nonsense"):
        start(file, tmp_path)


def test_a_gateway_that_never_is_ready_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "START_LIMIT_S", 0.0)
    file = tmp_path / "gateway.toml"
    nobody = {"http://127.0.0.1:9": WorkerPlan("steady", 0.0)}
    file.write_text(configuration(nobody, 1, "sk-test"), encoding="utf-8")

    with pytest.raises(ServiceFailed, match="/ready did not answer 200 in time"):
        start(file, tmp_path)


def test_imports_cost_processor_time() -> None:
    assert import_cpu_s() > 0.01


def test_a_gateway_that_cannot_be_imported_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "IMPORTS", "import no_such_module")

    with pytest.raises(ServiceFailed, match=r"cannot be imported: [\s\S]*no_such_module"):
        import_cpu_s()
