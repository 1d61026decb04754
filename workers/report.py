"""How does a plan read, to a person and to a shell?"""

from collections.abc import Iterator, Sequence

from workers.command import served_name
from workers.launch import url
from workers.memory import GIB, LONG_REQUEST_TOKENS, MemoryPlan
from workers.plan import WorkerPlan
from workers.spec import CpuWorker, Worker

LOOPBACK = ("127.", "localhost", "::1")


def report(plans: Sequence[WorkerPlan]) -> str:
    """Every worker's memory plan as comments over its command, which can be pasted into a shell."""
    return "\n\n".join("\n".join(_lines(plan)) for plan in plans) + "\n"


def _lines(plan: WorkerPlan) -> Iterator[str]:
    worker = plan.worker
    yield f"# {worker.id}: {served_name(worker)} on {_place(worker)}, {url(worker.host, worker.port)}"
    for name, value in _memory(worker, plan.memory):
        yield f"#   {name:<16} {value}"
    if not worker.host.startswith(LOOPBACK) and not worker.api_key_env:
        yield "#   note: it can be reached from other machines and asks for no key; set api_key_env"
    yield plan.command.shell_line()


def _place(worker: Worker) -> str:
    if isinstance(worker, CpuWorker):
        return (
            f"{worker.cpu_threads} CPU thread(s)"
            if worker.cpu_core is None
            else f"CPU core {worker.cpu_core}"
        )
    gpus = ", ".join(map(str, worker.gpus))
    return f"GPU {gpus} (tensor parallel {worker.tensor_parallel_size})"


def _memory(worker: Worker, memory: MemoryPlan) -> Iterator[tuple[str, str]]:
    if isinstance(worker, CpuWorker):
        yield "memory", f"{_gib(memory.budget_bytes)} in all"
        share = ""
    else:
        used = f"{worker.gpu_memory_utilization:.0%} of {worker.gpu_memory_gib:g} GiB"
        yield "per GPU", f"{_gib(memory.budget_bytes)} ({used})"
        share = " per GPU"
    yield "  weights", _gib(memory.weights_bytes)
    yield (
        "  to run",
        f"{_gib(memory.activations_bytes + memory.overhead_bytes)} (activations, runtime; estimated)",
    )
    yield "  KV cache", f"{_gib(memory.kv_bytes)}, {memory.kv_token_bytes / 1024:g} KiB a token{share}"
    yield "KV tokens", f"{memory.kv_tokens:,}"
    lengths = {memory.max_model_len}
    if memory.max_model_len > LONG_REQUEST_TOKENS:
        lengths.add(LONG_REQUEST_TOKENS)
    for tokens in sorted(lengths):
        yield "fits at once", f"{memory.requests_of(tokens)} requests of {tokens:,} tokens"
    average = memory.kv_tokens // worker.max_num_seqs
    yield "full batch", f"{worker.max_num_seqs} sequences of {average:,} tokens on average"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f} GiB"
