"""With which arguments and environment is a worker started?

Pure. Flags are those of vLLM 0.32; its defaults are written out where the plan relies on them.
"""

import json
import shlex
from dataclasses import dataclass

from workers.memory import max_model_len
from workers.models import Shape
from workers.spec import CpuWorker, CudaWorker, Worker

YARN_FACTOR = 4.0

# Flags that come from fields, and those that stay out because they would open the worker: not for extra_args.
FIELD_OF_FLAG = {
    "--model": "model",
    "--served-model-name": "served_name",
    "--host": "host",
    "--port": "port",
    "--tensor-parallel-size": "tensor_parallel",
    "-tp": "tensor_parallel",
    "--max-model-len": "max_model_len",
    "--quantization": "quantization",
    "-q": "quantization",
    "--dtype": "dtype",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--enable-chunked-prefill": "chunked_prefill",
    "--enable-prefix-caching": "prefix_caching",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--long-prefill-token-threshold": "long_prefill_token_threshold",
    "--max-num-queued-reqs": "max_num_queued_reqs",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--shutdown-timeout": "shutdown_timeout_s",
    "--enable-auto-tool-choice": "tool_call_parser",
    "--tool-call-parser": "tool_call_parser",
    "--hf-overrides": "yarn",
}
FIXED_FLAGS = {
    "--fingerprint-mode": "answers would name the server's version and layout",
    "--disable-fastapi-docs": "it is always passed: a worker needs no documentation pages",
    "--allowed-origins": "no web page may call a worker",
    "--disable-access-log-for-endpoints": "it is always passed, so that probes do not fill the log",
    "--enforce-eager": "it is always passed to a CPU worker",
}
REFUSED_FLAGS = {
    "--api-key": "every user of the machine could read it in the process list; use api_key_env",
    "--trust-request-chat-template": "callers could run templates of their own in the worker",
    "--trust-request-mm-kwargs": "callers could choose how much the worker works",
    "--enable-tokenizer-info-endpoint": "it shows the chat template to anyone",
    "--tokens-only": "it opens paths that ask for no key",
    "--enable-scale-out": "it opens paths that ask for no key",
    "--uds": "health is asked for over TCP; use host and port",
}


@dataclass(frozen=True, slots=True)
class Command:
    """What is executed. No secret is in it: `secrets` maps a variable to the one it is copied from."""

    argv: tuple[str, ...]
    env: dict[str, str]
    secrets: dict[str, str]

    def shell_line(self) -> str:
        """The command as one pasteable shell statement, a part a line."""
        parts = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        parts += [f'{name}="${source}"' for name, source in self.secrets.items()]
        words = [shlex.quote(word) for word in self.argv]
        first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
        parts.append(" ".join(words[:first]))
        for word in words[first:]:
            if word.startswith("--"):
                parts.append(word)
            else:
                parts[-1] += f" {word}"
        return " \\\n  ".join(parts)


def command_for(worker: Worker, shape: Shape) -> Command:
    """Builds the command of a worker whose paths have been resolved (a CPU worker has python and model)."""
    secrets = {"VLLM_API_KEY": worker.api_key_env} if worker.api_key_env else {}
    if isinstance(worker, CpuWorker):
        start = [str(worker.python), "-m", "vllm.entrypoints.launchers.api_server.entry"]
        # The positional model is parsed and then ignored by this entry point.
        start += ["--model", str(worker.model)]
        device_flags, device_env = ["--enforce-eager"], _cpu_env(worker)
    else:
        start = [worker.vllm, "serve", worker.model]
        device_flags, device_env = _cuda_flags(worker, shape), _cuda_env(worker)
    argv = [*start, *_common_flags(worker, shape), *device_flags, *worker.extra_args]
    return Command(tuple(argv), _common_env(worker) | device_env | worker.env, secrets)


def served_name(worker: Worker) -> str:
    """The name under which callers ask for the worker's model."""
    return worker.served_name or str(worker.model).rstrip("/").rsplit("/", 1)[-1]


def _common_flags(worker: Worker, shape: Shape) -> list[str]:
    flags = ["--served-model-name", served_name(worker), "--host", worker.host, "--port", str(worker.port)]
    flags += ["--max-model-len", str(max_model_len(worker, shape))]
    if worker.dtype != "auto":
        flags += ["--dtype", worker.dtype]
    flags.append("--enable-chunked-prefill" if worker.chunked_prefill else "--no-enable-chunked-prefill")
    flags.append("--enable-prefix-caching" if worker.prefix_caching else "--no-enable-prefix-caching")
    flags += ["--max-num-seqs", str(worker.max_num_seqs)]
    flags += ["--max-num-batched-tokens", str(worker.max_num_batched_tokens)]
    flags += ["--long-prefill-token-threshold", str(worker.long_prefill_token_threshold)]
    flags += ["--max-num-queued-reqs", str(worker.queued_limit)]
    flags += ["--shutdown-timeout", str(worker.shutdown_timeout_s)]
    if worker.tool_call_parser:
        flags += ["--enable-auto-tool-choice", "--tool-call-parser", worker.tool_call_parser]
    # The gateway is the only caller: no documentation, no browser origins, no version in the answers.
    flags += ["--disable-fastapi-docs", "--allowed-origins", "[]", "--fingerprint-mode", "none"]
    return [*flags, "--disable-access-log-for-endpoints", "/health,/metrics"]


def _common_env(worker: Worker) -> dict[str, str]:
    return {
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(worker.keep_alive_s),
        "VLLM_NO_USAGE_STATS": "1",
        # Written out so that a variable of the surrounding shell cannot switch it on.
        "VLLM_SERVER_DEV_MODE": "0",
        "PYTHONUNBUFFERED": "1",
    }


def _cuda_flags(worker: CudaWorker, shape: Shape) -> list[str]:
    flags = ["--tensor-parallel-size", str(worker.tensor_parallel_size)]
    flags += ["--gpu-memory-utilization", str(worker.gpu_memory_utilization)]
    # Left out unless asked for: vLLM reads the method from the checkpoint.
    if worker.quantization not in (None, "none"):
        flags += ["--quantization", str(worker.quantization)]
    if worker.kv_cache_dtype != "auto":
        flags += ["--kv-cache-dtype", worker.kv_cache_dtype]
    if worker.yarn:
        flags += ["--hf-overrides", yarn_overrides(shape)]
    return flags


def _cuda_env(worker: CudaWorker) -> dict[str, str]:
    # The order of nvidia-smi; CUDA's own default is fastest first.
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, worker.gpus)),
    }


def _cpu_env(worker: CpuWorker) -> dict[str, str]:
    if worker.cpu_core is None:
        binding = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(worker.cpu_threads)}
    else:
        binding = {"VLLM_CPU_OMP_THREADS_BIND": str(worker.cpu_core)}
    return {"VLLM_CPU_KVCACHE_SPACE": str(worker.kv_cache_gib), **binding, "HF_HUB_OFFLINE": "1"}


def yarn_overrides(shape: Shape) -> str:
    """The model configuration that stretches the context four times, as JSON.

    Both parts are needed: vLLM no longer multiplies the context by the factor, and it reads the new spelling
    of the rotary parameters only.
    """
    native = shape.max_position_embeddings
    rope = {
        "rope_type": "yarn",
        "rope_theta": shape.rope_theta,
        "factor": YARN_FACTOR,
        "original_max_position_embeddings": native,
    }
    overrides = {"max_position_embeddings": int(native * YARN_FACTOR), "rope_parameters": rope}
    return json.dumps(overrides, separators=(",", ":"))
