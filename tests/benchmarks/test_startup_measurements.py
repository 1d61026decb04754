"""Are starts summed up right?"""

from pathlib import Path

import pytest

from benchmarks.startup import measurements
from benchmarks.startup.measurements import Plan, measure
from benchmarks.startup.starts import Start


def test_medians_and_the_longest_are_told_for_each_store(monkeypatch: pytest.MonkeyPatch) -> None:
    imports_s = iter((0.2, 0.1, 0.9))
    starts = iter(Start(wall_s, wall_s / 2) for wall_s in (0.3, 1.0, 0.7, 2.0, 0.4, 3.0))
    files: list[str] = []

    def start(file: Path, folder: Path) -> Start:
        files.append(file.stem)
        return next(starts)

    monkeypatch.setattr(measurements, "import_cpu_s", lambda: next(imports_s))
    monkeypatch.setattr(measurements, "start", start)
    told: list[str] = []

    rows = measure(Plan(3), told.append)

    assert [row.value for row in rows] == pytest.approx([200, 400, 700, 200, 2000, 3000, 1000])
    assert files == ["memory", "redis"] * 3  # in turns
    assert told == ["imports", "starts"]
