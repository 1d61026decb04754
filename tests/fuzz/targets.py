"""Which targets are there, and what is in their corpora?"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import intake, protocol, response, sse

CORPORA = Path(__file__).parent / "corpora"


class Target(NamedTuple):
    name: str
    check: Callable[[bytes], None]
    words: tuple[bytes, ...]  # that mean something to what is tested

    @property
    def folder(self) -> Path:
        return CORPORA / self.name

    def corpus(self) -> dict[str, bytes]:
        """By name of the file."""
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}


TARGETS = {
    name: Target(name, of.check, of.WORDS)
    for name, of in {"intake": intake, "protocol": protocol, "response": response, "sse": sse}.items()
}
