"""What do the files that containers are made from say, once read as the tools read them?"""

import functools
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/gateway.Dockerfile"

Service = dict[str, Any]


def tool(name: str, package: str) -> str:
    """Where a program is. Fails, rather than skips, since nothing is checked without it."""
    found = shutil.which(name)
    assert found, f"{name} is needed for this test: apt-get install --no-install-recommends {package}"
    return found


@functools.cache
def services(profile: str = "gpu") -> dict[str, Service]:
    """All services of docker-compose.yml, as docker-compose itself resolves it; other profiles' too."""
    program = tool("docker-compose", "docker-compose")
    done = subprocess.run(
        [program, "--file", ROOT / "docker-compose.yml", "--profile", profile, "config"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},  # nothing of the surrounding shell may change the result
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Service] = yaml.safe_load(done.stdout)["services"]
    return found


@dataclass(frozen=True)
class Instruction:
    """One line of a Dockerfile, continuation lines joined. `stage` counts from 0."""

    stage: int
    name: str
    value: str

    def words(self) -> list[str]:
        """The arguments of one written as a JSON list."""
        words: list[str] = json.loads(self.value[self.value.index("[") :])
        return words


def dockerfile() -> list[Instruction]:
    """The instructions of the gateway's Dockerfile."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if line.strip()]
    text = "\n".join(line for line in lines if not line.startswith("#"))
    found: list[Instruction] = []
    stage = -1
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        name, _, value = line.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, value))
    return found


def last(name: str) -> Instruction:
    """The instruction of that name that is in force in the image."""
    final = max(instruction.stage for instruction in dockerfile())
    return [i for i in dockerfile() if i.name == name and i.stage == final][-1]
