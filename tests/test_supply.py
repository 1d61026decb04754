"""Is each package that this one needs held between two versions, above those with known holes?"""

import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# The first versions without a known hole that a gateway of this kind can be reached through.
MENDED = {
    "h11": "0.16.0",  # CVE-2025-43859: the ends of chunks were not checked
    "starlette": "1.0.1",  # CVE-2026-48710: a Host could change the path that is served
}


def requirements() -> list[Requirement]:
    """Of the package itself, of its extras, and of its build."""
    hook = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
    extras = chain.from_iterable(PROJECT["project"]["optional-dependencies"].values())
    named = [*PROJECT["project"]["dependencies"], *extras, *PROJECT["build-system"]["requires"]]
    return [Requirement(name) for name in [*named, *hook["dependencies"]]]


def test_every_package_is_held_between_two_versions() -> None:
    bounds = {str(each): {specifier.operator for specifier in each.specifier} for each in requirements()}

    assert len(bounds) > 30
    assert {name: of for name, of in bounds.items() if of != {">=", "<"}} == {}


@pytest.mark.parametrize("name", MENDED)
def test_no_version_with_a_known_hole_is_allowed(name: str) -> None:
    found = [each for each in requirements() if each.name == name]

    assert found
    for each in found:
        [least] = [Version(of.version) for of in each.specifier if of.operator == ">="]
        assert least >= Version(MENDED[name])
