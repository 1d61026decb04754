"""What is asked of an engine, what does it tell, and what bounds it?"""

from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.simulator.blocks import BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Limits:
    """The options of `vllm serve` of the same names. Defaults as on the measured H200s."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192  # vLLM's own default on a GPU of 70 GB or more
    long_prefill_token_threshold: int = 0  # of one prompt in one step; 0 for no such limit
    kv_tokens: int = 1_800_000  # 0.85 of 141 GB less weights and activations, at 56 KiB a token; computed
    max_model_len: int = 32_768

    def __post_init__(self) -> None:
        if self.max_model_len > self.kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS:
            raise ValueError(
                f"max_model_len {self.max_model_len} does not fit into {self.kv_tokens} KV tokens"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Two requests are never equal, however alike. Both counts are 1 or more."""

    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = field(default=(), repr=False)  # of its full blocks, from blocks.chain


class Event(NamedTuple):
    """A request has one more token."""

    request: Request
    time_s: float
    cached_tokens: int  # of its prompt, found in the prefix cache when it was first let in
    tokens: int  # so far
    finished: bool
