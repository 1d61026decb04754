"""How much memory does a worker need, and how many tokens of context does the rest hold?

All figures are computed, none measured: on start vLLM logs its own ("GPU KV cache size"), which holds. The
formulas, per GPU, with T = tensor parallel size:

* budget = card x gpu_memory_utilization.
* weights = matrices / T (KV heads are copied where there are fewer than GPUs), embeddings / T, norms and
  biases whole. A quantized matrix costs bits/8 bytes a weight plus, per group, an fp16 scale and a zero point
  of `bits` bits; embeddings and head stay in 16 bits.
* activations = the peak of one step: tokens x (4 hidden states + gate, up and product of the MLP / T), plus
  the sampler's copies of the logits (16-bit, fp32 twice, sorted values and their 64-bit indices) for
  max_num_seqs rows of the vocabulary.
* overhead = CUDA context, NCCL buffers and CUDA graphs: a flat 1 GiB.
* KV cache = what remains; one token takes 2 x layers x KV heads / T x head_dim x bytes.

Every GPU of a worker holds its heads' part of the same tokens, so tokens per GPU are tokens per worker.
"""

from dataclasses import dataclass

from workers.models import Shape
from workers.spec import CpuWorker, CudaWorker, Worker

GIB = 1 << 30
LONG_REQUEST_TOKENS = 32_768

GPU_OVERHEAD_BYTES = GIB
GPU_BLOCK_TOKENS = 16
# A CPU worker's three Python processes with torch and vLLM loaded. Measured with vLLM 0.32 and SmolLM2-135M:
# 3.0 GB resident, less its 1 GiB of KV cache and 0.27 GB of weights.
CPU_OVERHEAD_BYTES = int(1.6 * GIB)
CPU_BLOCK_TOKENS = 128

_LOGITS_BYTES = 2 + 4 + 4 + 4 + 8
_HIDDEN_STATES = 4
_GATE_UP_AND_PRODUCT = 3


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes per GPU (of the whole process for a CPU worker) and tokens per worker."""

    budget_bytes: int
    weights_bytes: int
    activations_bytes: int
    overhead_bytes: int
    kv_bytes: int
    kv_token_bytes: int
    block_tokens: int
    max_model_len: int

    @property
    def needed_bytes(self) -> int:
        """What must be there before the first token is cached."""
        return self.weights_bytes + self.activations_bytes + self.overhead_bytes

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds, in whole blocks; 0 where nothing is left for it."""
        blocks = max(0, self.kv_bytes) // (self.kv_token_bytes * self.block_tokens)
        return blocks * self.block_tokens

    def requests_of(self, tokens: int) -> int:
        """How many requests of that many tokens (prompt and answer) fit at once."""
        return self.kv_tokens // self._in_blocks(tokens)

    def kv_bytes_for(self, tokens: int) -> int:
        """Cache bytes that one request of that many tokens takes."""
        return self._in_blocks(tokens) * self.kv_token_bytes

    def _in_blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens) * self.block_tokens


def max_model_len(worker: Worker, shape: Shape) -> int:
    """The context length the worker serves, tokens."""
    return worker.max_model_len or native_context(worker, shape)


def native_context(worker: Worker, shape: Shape) -> int:
    """The longest context the model can be asked for, tokens: its own, or four times that under YaRN."""
    stretched = isinstance(worker, CudaWorker) and worker.yarn
    return shape.max_position_embeddings * (4 if stretched else 1)


def memory_plan(worker: Worker, shape: Shape) -> MemoryPlan:
    """Applies the formulas above. A plan whose KV cache is negative means the weights do not fit."""
    return _cpu_plan(worker, shape) if isinstance(worker, CpuWorker) else _gpu_plan(worker, shape)


def _gpu_plan(worker: CudaWorker, shape: Shape) -> MemoryPlan:
    budget = int(worker.gpu_memory_gib * GIB * worker.gpu_memory_utilization)
    weights = weights_bytes(shape, worker.tensor_parallel_size, worker.weight_bytes)
    activations = activations_bytes(worker, shape)
    return MemoryPlan(
        budget_bytes=budget,
        weights_bytes=weights,
        activations_bytes=activations,
        overhead_bytes=GPU_OVERHEAD_BYTES,
        kv_bytes=budget - weights - activations - GPU_OVERHEAD_BYTES,
        kv_token_bytes=kv_token_bytes(
            shape, worker.tensor_parallel_size, 1 if worker.kv_cache_dtype == "fp8" else worker.weight_bytes
        ),
        block_tokens=GPU_BLOCK_TOKENS,
        max_model_len=max_model_len(worker, shape),
    )


def _cpu_plan(worker: CpuWorker, shape: Shape) -> MemoryPlan:
    kv = worker.kv_cache_gib * GIB
    weights = weights_bytes(shape, 1, worker.weight_bytes)
    activations = activations_bytes(worker, shape)
    return MemoryPlan(
        budget_bytes=weights + activations + CPU_OVERHEAD_BYTES + kv,
        weights_bytes=weights,
        activations_bytes=activations,
        overhead_bytes=CPU_OVERHEAD_BYTES,
        kv_bytes=kv,
        kv_token_bytes=kv_token_bytes(shape, 1, worker.weight_bytes),
        block_tokens=CPU_BLOCK_TOKENS,
        max_model_len=max_model_len(worker, shape),
    )


def kv_heads_per_gpu(shape: Shape, tensor_parallel: int) -> int:
    """Key and value heads on each GPU; one is copied where there are more GPUs than heads."""
    return max(1, shape.kv_heads // tensor_parallel)


def kv_token_bytes(shape: Shape, tensor_parallel: int, element_bytes: int) -> int:
    """Cache bytes of one token on each GPU: a key and a value per layer and local head."""
    return 2 * shape.layers * kv_heads_per_gpu(shape, tensor_parallel) * shape.head_dim * element_bytes


def weights_bytes(shape: Shape, tensor_parallel: int, element_bytes: int) -> int:
    """Bytes of weights on each GPU."""
    kv_copies = kv_heads_per_gpu(shape, tensor_parallel) * tensor_parallel - shape.kv_heads
    copied = shape.layers * 2 * shape.hidden_size * shape.head_dim * kv_copies
    if shape.quantization == "none":
        matrix_bytes = float(element_bytes)
    else:
        matrix_bytes = shape.bits / 8 * (1 + 1 / shape.group_size) + 2 / shape.group_size
    matrices = (shape.linear_parameters + copied) * matrix_bytes
    embeddings = shape.embedding_parameters * element_bytes
    return int((matrices + embeddings) / tensor_parallel) + shape.small_parameters * element_bytes


def activations_bytes(worker: Worker, shape: Shape) -> int:
    """Peak bytes of one step on each GPU: the layers' working set and the sampler's logits."""
    mlp = _GATE_UP_AND_PRODUCT * shape.intermediate_size // worker.tensor_parallel_size
    per_token = (_HIDDEN_STATES * shape.hidden_size + mlp) * worker.weight_bytes
    logits = worker.max_num_seqs * shape.vocab_size * _LOGITS_BYTES
    return worker.max_num_batched_tokens * per_token + logits
