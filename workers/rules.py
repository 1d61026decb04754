"""Do a worker's settings agree with each other, with its model and with its neighbours?

A rule gives the remedy where it is broken. It names every field it reads, so that it is not asked about a
value that is already at fault; the first of them is the one reported.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from workers.command import FIELD_OF_FLAG, FIXED_FLAGS, REFUSED_FLAGS
from workers.memory import GIB, MemoryPlan, max_model_len, memory_plan, native_context, weights_bytes
from workers.models import Shape
from workers.spec import CpuWorker, CudaWorker, Worker

Remedy = str | None
Fields = tuple[str, ...]


def broken_settings(worker: Worker, faulty: frozenset[str]) -> Iterator[tuple[str, str]]:
    """(field, remedy) of each rule between settings that the worker breaks; `faulty` fields are not asked."""
    yield from _ask(SETTING_RULES, faulty, worker)
    if isinstance(worker, CudaWorker):
        yield from _ask(CUDA_SETTING_RULES, faulty, worker)


def broken_by_model(worker: Worker, shape: Shape, faulty: frozenset[str]) -> Iterator[tuple[str, str]]:
    """(field, remedy) of each rule between settings and the model's shape that the worker breaks."""
    yield from _ask(MODEL_RULES, faulty, worker, shape)
    if isinstance(worker, CudaWorker):
        unshardable = list(_ask(SHARDING_RULES, faulty, worker, shape))
        yield from unshardable
        yield from _ask(YARN_RULES, faulty, worker, shape)
        # How much fits is a question only where the layers can be divided at all.
        if not unshardable:
            yield from _ask(CUDA_MEMORY_RULES, faulty, worker, shape)
    else:
        yield from _ask(CPU_MEMORY_RULES, faulty, worker, shape)


def clashes(workers: Sequence[tuple[Worker, frozenset[str]]]) -> Iterator[tuple[int, str, str]]:
    """(index, field, remedy) of each thing that two workers cannot both have."""
    owners: dict[tuple[str, object], int] = {}
    for index, (worker, faulty) in enumerate(workers):
        for field, claims in _claims(worker).items():
            if field in faulty:
                continue
            for claim in claims:
                owner = owners.setdefault((field, claim), index)
                if owner != index:
                    yield (
                        index,
                        field,
                        f"{claim} is already taken by workers[{owner}]; give each worker its own",
                    )


def _claims(worker: Worker) -> Mapping[str, Sequence[object]]:
    claims: dict[str, Sequence[object]] = {"id": [worker.id], "port": [worker.port]}
    if isinstance(worker, CudaWorker):
        claims["gpus"] = worker.gpus
    elif worker.cpu_core is not None:
        claims["cpu_core"] = [worker.cpu_core]
    return claims


def _ask(
    rules: Mapping[Fields, Callable[..., Remedy]], faulty: frozenset[str], *subject: object
) -> Iterator[tuple[str, str]]:
    for fields, rule in rules.items():
        if faulty.isdisjoint(fields) and (remedy := rule(*subject)) is not None:
            yield fields[0], remedy


def _extra_args_repeat_nothing(worker: Worker) -> Remedy:
    faults = []
    for word in worker.extra_args:
        flag = word.split("=", 1)[0]
        if flag.startswith("--"):
            flag = "--" + flag[2:].replace("_", "-").removeprefix("no-")
        if field := FIELD_OF_FLAG.get(flag):
            faults.append(f"{flag}: set {field} instead")
        elif reason := FIXED_FLAGS.get(flag) or REFUSED_FLAGS.get(flag):
            faults.append(f"{flag} is not allowed: {reason}")
    return "; ".join(faults) or None


def _step_holds_every_sequence(worker: Worker) -> Remedy:
    if worker.max_num_batched_tokens >= worker.max_num_seqs:
        return None
    return (
        f"must be at least max_num_seqs ({worker.max_num_seqs}): each running sequence takes a token a step"
    )


def _backstop_leaves_room_for_the_batch(worker: Worker) -> Remedy:
    if worker.queued_limit >= worker.max_num_seqs:
        return None
    return f"must be at least max_num_seqs ({worker.max_num_seqs}): it counts running requests too"


def _parallelism_is_the_gpus(worker: CudaWorker) -> Remedy:
    if worker.tensor_parallel_size == len(worker.gpus):
        return None
    return (
        f"must equal the number of gpus ({len(worker.gpus)}); leave it out, or give each worker its own gpus"
    )


def _context_is_within_the_model(worker: Worker, shape: Shape) -> Remedy:
    native = native_context(worker, shape)
    if max_model_len(worker, shape) <= native:
        return None
    hint = "" if isinstance(worker, CpuWorker) or worker.yarn else "; `yarn = true` stretches it four times"
    return f"the model goes up to {native} tokens{hint}"


def _threshold_is_within_the_context(worker: Worker, shape: Shape) -> Remedy:
    if worker.long_prefill_token_threshold <= max_model_len(worker, shape):
        return None
    return f"must be at most max_model_len ({max_model_len(worker, shape)}); 0 switches it off"


def _whole_prompt_fits_a_step(worker: Worker, shape: Shape) -> Remedy:
    if worker.chunked_prefill or worker.max_num_batched_tokens >= max_model_len(worker, shape):
        return None
    return (
        f"must be at least max_model_len ({max_model_len(worker, shape)}) without chunked_prefill, since a "
        "prompt is then read in one step"
    )


def _yarn_starts_from_plain_rope(worker: CudaWorker, shape: Shape) -> Remedy:
    if worker.yarn and shape.rope_scaled:
        return "the checkpoint scales its context already; leave yarn out and set max_model_len"
    return None


def _yarn_is_needed(worker: CudaWorker, shape: Shape) -> Remedy:
    if not worker.yarn or max_model_len(worker, shape) > shape.max_position_embeddings:
        return None
    return (
        f"set max_model_len above {shape.max_position_embeddings}, or leave yarn out: it changes short "
        "prompts too, for nothing"
    )


def _quantization_is_the_checkpoints(worker: CudaWorker, shape: Shape) -> Remedy:
    if worker.quantization in (None, shape.quantization):
        return None
    return f'the checkpoint is "{shape.quantization}"; leave it out, or choose another model'


def _heads_divide(worker: CudaWorker, shape: Shape) -> Remedy:
    parts = worker.tensor_parallel_size
    if shape.heads % parts:
        fault = f"cannot share {shape.heads} heads"
    elif shape.kv_heads % parts and parts % shape.kv_heads:
        fault = f"can neither divide {shape.kv_heads} KV heads nor copy them evenly"
    elif shape.intermediate_size % parts:
        fault = f"cannot share an MLP of {shape.intermediate_size}"
    else:
        return None
    return f"{parts} GPUs {fault}; possible here: {_divisors(shape)}"


def _groups_stay_whole(worker: CudaWorker, shape: Shape) -> Remedy:
    parts = worker.tensor_parallel_size
    if shape.quantization == "none" or parts == 1 or _heads_divide(worker, shape):
        return None
    rows = {"MLP": shape.intermediate_size, "attention": shape.heads * shape.head_dim}
    cut = [f"{name} {width} / {parts}" for name, width in rows.items() if width // parts % shape.group_size]
    if not cut:
        return None
    return (
        f"each GPU must hold whole groups of {shape.group_size} quantized weights, and "
        f"{' and '.join(cut)} is no multiple of it; possible here: {_divisors(shape)}"
    )


def _divisors(shape: Shape) -> str:
    return ", ".join(str(parts) for parts in range(1, shape.heads + 1) if _shards(shape, parts))


def _shards(shape: Shape, parts: int) -> bool:
    """Whether every layer can be cut into that many equal parts."""
    kv_fits = shape.kv_heads % parts == 0 or parts % shape.kv_heads == 0
    if shape.heads % parts or shape.intermediate_size % parts or not kv_fits:
        return False
    if shape.quantization == "none" or parts == 1:
        return True
    rows = (shape.intermediate_size // parts, shape.heads * shape.head_dim // parts)
    return all(width % shape.group_size == 0 for width in rows)


def _weights_fit(worker: CudaWorker, shape: Shape) -> Remedy:
    plan = memory_plan(worker, shape)
    if plan.kv_tokens > 0:
        return None
    whole = weights_bytes(shape, 1, worker.weight_bytes)
    return (
        f"{plan.weights_bytes / GIB:.1f} GiB of weights ({whole / GIB:.1f} in all) and "
        f"{(plan.needed_bytes - plan.weights_bytes) / GIB:.1f} GiB to run do not fit into the "
        f"{plan.budget_bytes / GIB:.1f} GiB that gpu_memory_utilization leaves of each card; use more gpus, "
        "larger ones, or a GPTQ or AWQ checkpoint"
    )


def _longest_request_fits(worker: CudaWorker, shape: Shape) -> Remedy:
    plan = memory_plan(worker, shape)
    if plan.kv_tokens == 0 or plan.kv_tokens >= plan.max_model_len:
        return None
    return (
        f"{_longest_request(plan)} per GPU and {plan.kv_bytes / GIB:.1f} are left; "
        f'set it to {plan.kv_tokens} or less, use more gpus, or kv_cache_dtype = "fp8"'
    )


def _longest_cpu_request_fits(worker: CpuWorker, shape: Shape) -> Remedy:
    plan = memory_plan(worker, shape)
    if plan.kv_tokens >= plan.max_model_len:
        return None
    return (
        f"{_longest_request(plan)} and there are {worker.kv_cache_gib}; "
        f"set it to {plan.kv_tokens} or less, or raise kv_cache_gib"
    )


def _longest_request(plan: MemoryPlan) -> str:
    cache_gib = plan.kv_bytes_for(plan.max_model_len) / GIB
    return f"one request of {plan.max_model_len} tokens takes {cache_gib:.1f} GiB of KV cache"


SETTING_RULES: Mapping[Fields, Callable[[Worker], Remedy]] = {
    ("extra_args",): _extra_args_repeat_nothing,
    ("max_num_batched_tokens", "max_num_seqs"): _step_holds_every_sequence,
    ("max_num_queued_reqs", "max_num_seqs"): _backstop_leaves_room_for_the_batch,
}
CUDA_SETTING_RULES: Mapping[Fields, Callable[[CudaWorker], Remedy]] = {
    ("tensor_parallel", "gpus"): _parallelism_is_the_gpus,
}
MODEL_RULES: Mapping[Fields, Callable[[Worker, Shape], Remedy]] = {
    ("max_model_len", "yarn"): _context_is_within_the_model,
    ("long_prefill_token_threshold", "max_model_len", "yarn"): _threshold_is_within_the_context,
    ("max_num_batched_tokens", "max_model_len", "yarn", "chunked_prefill"): _whole_prompt_fits_a_step,
}
SHARDING_RULES: Mapping[Fields, Callable[[CudaWorker, Shape], Remedy]] = {
    ("quantization",): _quantization_is_the_checkpoints,
    ("tensor_parallel", "gpus"): _heads_divide,
    ("tensor_parallel", "gpus", "quantization"): _groups_stay_whole,
}
YARN_RULES: Mapping[Fields, Callable[[CudaWorker, Shape], Remedy]] = {
    ("yarn",): _yarn_starts_from_plain_rope,
    ("yarn", "max_model_len"): _yarn_is_needed,
}
_MEMORY_FIELDS = (
    "gpus",
    "tensor_parallel",
    "dtype",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_gib",
)
CUDA_MEMORY_RULES: Mapping[Fields, Callable[[CudaWorker, Shape], Remedy]] = {
    ("model", "gpu_memory_utilization", *_MEMORY_FIELDS): _weights_fit,
    (
        "max_model_len",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "yarn",
        *_MEMORY_FIELDS,
    ): _longest_request_fits,
}
CPU_MEMORY_RULES: Mapping[Fields, Callable[[CpuWorker, Shape], Remedy]] = {
    ("max_model_len", "kv_cache_gib", "dtype"): _longest_cpu_request_fits,
}
