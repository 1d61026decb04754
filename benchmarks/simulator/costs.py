"""How long does a step of the engine take?"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

H200 = Path(__file__).with_name("h200.fit.json")
CROWD = 128  # decodes; beyond it a step of the measured engine grows faster


class Work(NamedTuple):
    """What one step does."""

    prefill_tokens: int
    attended_tokens: float  # for each prefill token, those before it, summed: the quadratic part of a prefill
    decodes: int  # requests that get one more token, without those whose prompt ends in this step
    kv_tokens: int  # read by the decodes: their contexts, summed


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds for each kind of work; a step takes their sum. All are fitted to measurements."""

    request_s: float  # from the caller to the engine's queue (HTTP, parsing), one request at a time
    step_s: float
    prefill_token_s: float
    attended_token_s: float
    decode_s: float
    crowded_decode_s: float  # on top, for each decode beyond CROWD
    kv_token_s: float

    @classmethod
    def load(cls, path: Path = H200) -> Self:
        """The coefficients of a fit that was kept."""
        return cls(**json.loads(path.read_text(encoding="utf-8"))["coefficients"])

    def of(self, work: Work) -> float:
        """Seconds."""
        return (
            self.step_s
            + self.prefill_token_s * work.prefill_tokens
            + self.attended_token_s * work.attended_tokens
            + self.decode_s * work.decodes
            + self.crowded_decode_s * max(0, work.decodes - CROWD)
            + self.kv_token_s * work.kv_tokens
        )
