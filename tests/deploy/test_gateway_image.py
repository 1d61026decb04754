"""Is the gateway's image small in rights and contents, and complete?"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.deploy.files import ROOT, dockerfile, last


def test_both_stages_start_from_the_same_pinned_python() -> None:
    bases = [i.value.split()[0] for i in dockerfile() if i.name == "FROM"]

    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.12\.\d+-slim-\w+", bases[0])


def test_the_final_stage_adds_the_gateway_and_takes_pip_away() -> None:
    final = [i for i in dockerfile() if i.stage == 1]

    assert [i.value for i in final if i.name == "COPY"] == ["--from=build /opt/gateway /opt/gateway"]
    assert [i.value for i in final if i.name == "RUN"] == [
        "python -m pip uninstall --yes --root-user-action=ignore pip"
    ]


def test_it_runs_as_a_numbered_user_that_is_not_root() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last("USER").value)


def test_it_is_stopped_by_the_signal_that_drains() -> None:
    assert last("STOPSIGNAL").value == "SIGTERM"


def test_the_build_context_holds_what_is_copied_and_no_more() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in ignore if line.startswith("!")}

    assert "*" in ignore
    assert let_in == set(copied())
    assert all((ROOT / name).exists() for name in let_in)


def test_what_is_copied_is_enough_to_build_the_package(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in copied():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*build, "--wheel-dir", tmp_path, source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    [wheel] = tmp_path.glob("vllm_gateway-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"gateway/__main__.py", "gateway/stores/redis/lua/limits.lua"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    with zipfile.ZipFile(wheel) as archive:
        [scripts] = [name for name in names if name.endswith("entry_points.txt")]
        assert "gateway = gateway.__main__:main" in archive.read(scripts).decode()


def copied() -> list[str]:
    """What the build stage takes from the checkout."""
    sources = [i.value.split()[:-1] for i in dockerfile() if i.name == "COPY" and i.stage == 0]
    return [source for instruction in sources for source in instruction]
