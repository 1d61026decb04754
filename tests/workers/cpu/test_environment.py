"""Is only a complete environment located, and is any other told with what to do?"""

from pathlib import Path

import pytest

from workers.cpu import NotInstalled, install, locate
from workers.cpu.environment import Place

pytestmark = pytest.mark.usefixtures("python")


def test_default_place_is_the_user_s_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert install() == locate(tmp_path / "xdg" / "vllm-gateway")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(
        NotInstalled, match=f"{tmp_path}/home/.cache/vllm-gateway; run `python -m workers.cpu`"
    ):
        locate()


def test_absent_environment_is_told_with_the_command_that_installs_it(cache: Path) -> None:
    with pytest.raises(NotInstalled, match=f"python -m workers.cpu --cache {cache}"):
        locate(cache)


def test_vanished_interpreter_is_not_located(cache: Path) -> None:
    install(cache)
    Place(cache).python.unlink()
    with pytest.raises(NotInstalled):
        locate(cache)


def test_own_model_that_vanished_is_not_located(cache: Path, model: Path) -> None:
    install(cache, model)
    (model / "config.json").unlink()
    with pytest.raises(NotInstalled):
        locate(cache)
