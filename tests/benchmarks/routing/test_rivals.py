"""Are rivals installed once, started as their authors advise, and missed aloud?"""

import sys
from pathlib import Path

import pytest

from benchmarks import environments
from benchmarks.routing.rivals import RIVALS, installed
from deploy.services import ServiceFailed

VLLM = RIVALS["vllm-router"]

# `python -m venv --clear PLACE`: makes one whose own python notes what it is asked to install.
MAKES_ENVIRONMENTS = """#!/bin/sh
mkdir -p "$4/bin"
printf '#!/bin/sh\\necho "$@" >> "%s/asked"\\n{then}\\n' "$4" > "$4/bin/python"
chmod +x "$4/bin/python"
"""


def interpreter(folder: Path, then: str = "true") -> str:
    file = folder / "python"
    file.write_text(MAKES_ENVIRONMENTS.replace("{then}", then))
    file.chmod(0o755)
    return str(file)


def test_a_rival_is_installed_in_its_pinned_version_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path))

    programs = [installed(VLLM, tmp_path), installed(VLLM, tmp_path)]

    place = tmp_path / "rivals" / f"vllm-router-{VLLM.version}"
    assert programs == [place / "bin" / "vllm-router"] * 2
    assert (place / "asked").read_text() == f"-m pip install --quiet vllm-router=={VLLM.version}\n"


def test_it_lies_in_the_users_cache_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert (tmp_path / "xdg" / "vllm-gateway" / "rivals") in installed(VLLM).parents


def test_an_installation_that_failed_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path, "echo no such version >&2; exit 1"))
    with pytest.raises(ServiceFailed, match="no such version"):
        installed(VLLM, tmp_path)
    with pytest.raises(ServiceFailed, match="no such version"):
        installed(VLLM, tmp_path)


def test_an_installation_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(environments, "INSTALL_LIMIT_S", 0.5)
    with pytest.raises(ServiceFailed, match=r"took longer than"):
        installed(VLLM, tmp_path)


@pytest.mark.parametrize(
    ("name", "first", "level"), [("vllm-router", [], "warning"), ("sglang-router", ["launch"], "warn")]
)
def test_a_rival_is_given_the_policy_the_ports_and_all_workers(
    name: str, first: list[str], level: str
) -> None:
    command = RIVALS[name].command(Path("it"), "cache_aware", (1, 2), ["http://a", "http://b"])

    assert command == [
        *("it", *first, "--host", "127.0.0.1", "--port", "1", "--prometheus-port", "2"),
        *("--policy", "cache_aware", "--log-level", level, "--worker-urls", "http://a", "http://b"),
    ]
