"""Which bucket is a prompt in, and is it long? By lengths that are given; the latter may be learnt."""

from bisect import bisect_right
from collections.abc import Sequence
from math import log2

from gateway.estimates import prefill_cost

LEAST_TOKENS = 4_096  # what is read in a tenth of a second keeps nobody waiting
MOST_TOKENS = 32_768
LEARN_EVERY = 500  # prompts
KEPT = 0.5  # of the histogram, at each time
_CLASSES_AN_OCTAVE = 4
_CLASSES = 24 * _CLASSES_AN_OCTAVE  # to 16 million tokens


class Lengths:
    """Of prompts, in tokens.

    Learning moves the length from which prompts are long to where it best parts the work that comes into two
    kinds: the variance of length between them is greatest (N. Otsu, A Threshold Selection Method from
    Gray-Level Histograms, 1979), lengths by their logarithm, each prompt weighed by what it takes to read it.
    """

    def __init__(self, bucket_edges: Sequence[int], long_from: int, is_learning: bool = False) -> None:
        """bucket_edges: where a longer bucket begins, rising. long_from: where long prompts do, at first."""
        self.long_from = long_from
        self._bucket_edges = tuple(bucket_edges)
        self._is_learning = is_learning
        self._work = [0.0] * _CLASSES  # by length
        self._seen = 0

    def bucket(self, prompt_tokens: int) -> int:
        return bisect_right(self._bucket_edges, prompt_tokens)

    def is_long(self, prompt_tokens: int) -> bool:
        return prompt_tokens >= self.long_from

    def note(self, prompt_tokens: int) -> None:
        """A prompt was of this length."""
        if not self._is_learning or prompt_tokens <= 0:
            return
        length = min(int(log2(prompt_tokens) * _CLASSES_AN_OCTAVE), _CLASSES - 1)
        self._work[length] += prefill_cost(prompt_tokens)
        self._seen += 1
        if self._seen % LEARN_EVERY == 0:
            self._learn()

    def _learn(self) -> None:
        best = max(range(1, _CLASSES), key=self._apart)
        self.long_from = min(max(round(2 ** (best / _CLASSES_AN_OCTAVE)), LEAST_TOKENS), MOST_TOKENS)
        self._work = [work * KEPT for work in self._work]

    def _apart(self, first_long: int) -> float:
        """The variance between those below a class and the others."""
        below, above = self._work[:first_long], self._work[first_long:]
        short, long = sum(below, 0.0), sum(above, 0.0)
        if not short or not long:
            return 0.0
        mean_short = sum((length * work for length, work in enumerate(below)), 0.0) / short
        mean_long = sum((length * work for length, work in enumerate(above, first_long)), 0.0) / long
        return short * long * (mean_long - mean_short) ** 2
