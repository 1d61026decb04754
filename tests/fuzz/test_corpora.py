"""Does what must hold for all bytes hold for those that are kept, and for some that are made of them?"""

from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import CORPORA, TARGETS, Target

FILES = [(target, name) for target in TARGETS.values() for name in target.corpus()]
MOST_BYTES = 64 * 1024  # of a file
EXAMPLES = 1000  # of a target
MOST_INJURIES = 4


@pytest.mark.parametrize(
    ("target", "name"), [pytest.param(*file, id=f"{file[0].name}/{file[1]}") for file in FILES]
)
def test_what_is_kept_shows_no_fault(target: Target, name: str) -> None:
    target.check(target.corpus()[name])


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_is_made_of_it_shows_no_fault(target: Target) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(_made_of(list(target.corpus().values()), target.words))
    def shows_no_fault(data: bytes) -> None:
        target.check(data)

    shows_no_fault()


@st.composite
def _made_of(draw: st.DrawFn, seeds: list[bytes], words: tuple[bytes, ...]) -> bytes:
    """One of the corpus with parts cut out, doubled, exchanged for a part of another, or words put in."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, MOST_INJURIES))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["word", "over", "bytes", "out", "double", "splice"])):
            case "word":
                data = data[:at] + draw(st.sampled_from(words)) + data[at:]
            case "over":
                word = draw(st.sampled_from(words))
                data = data[:at] + word + data[at + len(word) :]
            case "bytes":
                data = data[:at] + draw(st.binary(min_size=1, max_size=3)) + data[at + 1 :]
            case "out":
                data = data[:at] + data[at + draw(st.integers(1, 8)) :]
            case "double":
                end = at + draw(st.integers(1, 40))
                data = data[:end] + data[at:end] + data[end:]
            case _:
                other = draw(st.sampled_from(seeds))
                data = data[:at] + other[draw(st.integers(0, len(other))) :]
    return data


def test_corpora_are_small_and_each_file_is_of_a_target() -> None:
    sizes = {path: path.stat().st_size for path in CORPORA.rglob("*") if path.is_file()}

    assert {path.parent.name for path in sizes} == set(TARGETS)
    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}
    assert sum(sizes.values()) < 1024 * 1024


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_no_bytes_are_kept_twice(target: Target) -> None:
    sums = [crc32(data) for data in target.corpus().values()]

    assert len(set(sums)) == len(sums) > 20
