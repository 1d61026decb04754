"""What may be said about one worker in a fleet file?"""

import re
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from workers.models import Quantization, Shape

Port = Annotated[int, Field(ge=1, le=65_535)]

SECRET_NAME = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$")

# Variables that a fleet file may not set, and what to do instead.
REFUSED_VARIABLES = {
    "VLLM_SERVER_DEV_MODE": "development mode lets any caller run code in the worker; leave it out",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "it lets any caller load adapters from paths of their choice",
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "set keep_alive_s",
    "VLLM_CPU_KVCACHE_SPACE": "set kv_cache_gib",
    "VLLM_CPU_OMP_THREADS_BIND": "set cpu_core",
    "OMP_NUM_THREADS": "set cpu_threads",
    "CUDA_VISIBLE_DEVICES": "set gpus",
}


class _Worker(BaseModel):
    """The fields that every worker has. Sizes and times carry their unit in the name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="a name of 1 to 64 letters, digits, '.', '_' and '-', used for the log file",
    )
    served_name: str | None = Field(
        default=None, min_length=1, description="name callers use; the last part of `model` if left out"
    )
    # vLLM itself binds all interfaces, and most of its paths ask for no key.
    host: str = Field(default="127.0.0.1", description="an IP address of this machine, or localhost")
    port: Port = Field(description="a free port, 1 to 65535")
    max_model_len: PositiveInt | None = Field(
        default=None, description="longest prompt plus answer, tokens; the model's own limit if left out"
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        default="auto", description='"auto", "bfloat16", "float16" or "float32"'
    )
    chunked_prefill: bool = Field(default=True, description="true or false")
    prefix_caching: bool = Field(default=True, description="true or false")
    max_num_seqs: PositiveInt = Field(default=256, description="sequences run at once, 1 or more")
    # 2048 gives a steadier time per token, 8192 more throughput.
    max_num_batched_tokens: PositiveInt = Field(default=4_096, description="tokens a step, 1 or more")
    # The largest single lever on time to first token under mixed load: long prompts no longer fill a step.
    long_prefill_token_threshold: NonNegativeInt = Field(
        default=1_024, description="tokens a step that one long prompt may take; 0 is no bound"
    )
    max_num_queued_reqs: PositiveInt | None = Field(
        default=None, description="unfinished requests before vLLM answers 503; max_num_seqs + 64 if left out"
    )
    shutdown_timeout_s: NonNegativeInt = Field(
        default=60, description="seconds for running requests to end after SIGTERM"
    )
    # Longer than any sane idle limit of a client, so that the client is the one that closes. vLLM's own 5 s
    # loses races with pooled connections.
    keep_alive_s: PositiveInt = Field(default=75, description="seconds an idle connection is kept, 1 or more")
    start_limit_s: PositiveInt = Field(default=900, description="seconds until it must be healthy, 1 or more")
    tool_call_parser: str | None = Field(
        default=None, min_length=1, description='vLLM\'s parser of tool calls ("hermes" for Qwen2.5)'
    )
    api_key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="name of the environment variable that holds the worker's key (never the key itself)",
    )
    extra_args: tuple[str, ...] = Field(
        default=(), strict=False, description='more arguments for vLLM, e.g. ["--seed", "7"]'
    )
    env: dict[str, str] = Field(default={}, description="more environment variables, name to text")
    shape: Shape | None = Field(
        default=None, description="the model's dimensions, where they cannot be found out"
    )

    @field_validator("host")
    @classmethod
    def _is_an_address(cls, host: str) -> str:
        if host != "localhost":
            ip_address(host)
        return host

    @field_validator("env")
    @classmethod
    def _variables_are_harmless(cls, env: dict[str, str]) -> dict[str, str]:
        faults = [f"{name}: {REFUSED_VARIABLES[name]}" for name in env if name in REFUSED_VARIABLES]
        faults += [
            f"{name}: no secrets in this file; export it, workers inherit the environment "
            "(for the worker's own key: api_key_env)"
            for name in env
            if SECRET_NAME.search(name)
        ]
        if faults:
            raise ValueError("; ".join(faults))
        return env

    @property
    def queued_limit(self) -> int:
        """Unfinished requests, running ones too, at which vLLM starts to refuse.

        A backstop only: the queue belongs to the gateway, so a little room above the batch is enough.
        """
        return self.max_num_seqs + 64 if self.max_num_queued_reqs is None else self.max_num_queued_reqs

    @property
    def weight_bytes(self) -> int:
        """Bytes of an unquantized weight and of an activation."""
        return 4 if self.dtype == "float32" else 2


class CudaWorker(_Worker):
    """One `vllm serve` over one or more NVIDIA GPUs of this machine."""

    device: Literal["cuda"] = "cuda"
    model: str = Field(min_length=1, description="a directory (/…, ./…, ~/…) or a repository id (owner/name)")
    gpus: tuple[NonNegativeInt, ...] = Field(
        strict=False, min_length=1, description="GPU numbers as nvidia-smi shows them, each once, e.g. [0, 1]"
    )
    tensor_parallel: PositiveInt | None = Field(
        default=None, description="GPUs that share each layer; all of `gpus` if left out"
    )
    quantization: Quantization | None = Field(
        default=None, description='"none", "gptq" or "awq"; what the checkpoint says if left out'
    )
    kv_cache_dtype: Literal["auto", "fp8"] = Field(
        default="auto", description='"auto" or "fp8" (half the memory; Ada, Hopper or newer)'
    )
    gpu_memory_gib: PositiveFloat = Field(
        default=24.0, description="memory of one card in GiB, e.g. 24, 80 or 141"
    )
    # vLLM's own 0.92 runs out of memory easily with a vocabulary of 152k.
    gpu_memory_utilization: float = Field(
        default=0.90, ge=0.1, le=0.98, description="share of a card's memory that vLLM may take, 0.1 to 0.98"
    )
    yarn: bool = Field(
        default=False, description="true stretches the context four times by YaRN; for a pool of long prompts"
    )
    vllm: str = Field(
        default="vllm", min_length=1, description="the vLLM executable, a name on PATH or a path"
    )

    @field_validator("gpus")
    @classmethod
    def _each_gpu_once(cls, gpus: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(gpus)) < len(gpus):
            raise ValueError("a GPU is named twice")
        return gpus

    @property
    def tensor_parallel_size(self) -> int:
        """GPUs that share each layer."""
        return self.tensor_parallel or len(self.gpus)


class CpuWorker(_Worker):
    """One vLLM on a few CPU cores, for development: same API, a small model, a few tokens a second."""

    device: Literal["cpu"]
    model: str | None = Field(
        default=None, min_length=1, description="a model directory; the installed SmolLM2-135M if left out"
    )
    python: str | None = Field(
        default=None,
        min_length=1,
        description="the interpreter that has vllm-cpu; the installed one if left out",
    )
    kv_cache_gib: PositiveInt = Field(default=1, description="memory for the KV cache, whole GiB, 1 or more")
    # Unbound by default: vLLM's own choice puts two workers on the same core.
    cpu_core: NonNegativeInt | None = Field(default=None, description="core to stay on; any core if left out")
    cpu_threads: PositiveInt = Field(
        default=1, description="compute threads when no core is given, 1 or more"
    )

    @property
    def tensor_parallel_size(self) -> int:
        """Always one: a CPU worker is not sharded."""
        return 1


Worker = CudaWorker | CpuWorker
