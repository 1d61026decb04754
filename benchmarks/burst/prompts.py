"""What are the servers asked? One prompt a request, from a file or made up."""

import random
from collections.abc import Sequence
from pathlib import Path

# Common words, one token each (with the blank before it) in most vocabularies.
WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city name president team minute idea body back parent face others level "
    "office door health person art war history party result change morning reason research girl"
)


def from_file(path: Path, count: int) -> list[str]:
    """One prompt a line, blank lines left out, repeated until there are `count`.

    Raises ValueError where the file has none.
    """
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} holds no prompt: write one on each line")
    return [lines[index % len(lines)] for index in range(count)]


def made_up(count: int, tokens: int, seed: int) -> Sequence[str]:
    """Prompts of about so many tokens each, a word a token.

    All differ, and another seed gives others: what a worker's prefix cache holds from the last burst
    would otherwise make this one look faster.
    """
    words, rng = WORDS.split(), random.Random(seed)
    return [" ".join(rng.choices(words, k=tokens)) for _ in range(count)]
