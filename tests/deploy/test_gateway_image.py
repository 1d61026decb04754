"""Is the gateway's image small in rights and contents, and complete?"""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.files import ROOT, dockerfile, last

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


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


def test_no_layer_holds_a_secret() -> None:
    """None can be given to the build, and none lies where it copies from."""
    assert {i.name for i in dockerfile()} & {"ARG", "ADD", "ONBUILD"} == set()
    assert not any("--mount" in i.value for i in dockerfile())
    assert {word.partition("=")[0] for i in dockerfile() if i.name == "ENV" for word in i.value.split()} == {
        "HATCH_BUILD_HOOKS_ENABLE",
        "PATH",
        "PYTHONUNBUFFERED",
    }


def test_everything_that_is_installed_is_known_by_its_hash() -> None:
    commands = [
        i.value for i in dockerfile() if i.name == "RUN" and re.search(r"\bpip\b.* (install|wheel) ", i.value)
    ]

    assert len(commands) == 4
    for command in commands:
        no_index = {"--no-index", "--no-build-isolation"} & set(command.split())
        assert "--require-hashes" in command or ("--no-deps" in command and no_index), command


@pytest.mark.parametrize("name", ["deploy/requirements.txt", "deploy/requirements.build.txt"])
def test_each_version_has_hashes(name: str) -> None:
    assert locked(name)
    assert [package for package, (_, hashes) in locked(name).items() if not hashes] == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("deploy/requirements.txt", PROJECT["project"]["dependencies"]),
        ("deploy/requirements.build.txt", PROJECT["dependency-groups"]["build"]),
    ],
)
def test_what_is_needed_is_there_in_a_version_that_will_do(name: str, wanted: list[str]) -> None:
    """If not: the file's own first lines say how it is made."""
    versions = {package: version for package, (version, _) in locked(name).items()}
    for requirement in map(Requirement, wanted):
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_what_builds_the_package_is_what_it_says_that_it_needs() -> None:
    hook = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]

    needed = {*PROJECT["build-system"]["requires"], *hook["dependencies"]}
    assert needed == set(PROJECT["dependency-groups"]["build"])


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
        (source / name).parent.mkdir(exist_ok=True)
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


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each package in a file of requirements."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(
        r"^([a-z0-9-]+)==([^ ]+)(.*(?:\n {4}--hash=sha256:[0-9a-f]{64}.*)*)", text, re.MULTILINE
    )
    return {package: (version, re.findall(r"sha256:", rest)) for package, version, rest in found}


def copied() -> list[str]:
    """What the build stage takes from the checkout."""
    sources = [i.value.split()[:-1] for i in dockerfile() if i.name == "COPY" and i.stage == 0]
    return [source for instruction in sources for source in instruction]
