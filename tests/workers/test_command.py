"""The exact command and environment of each kind of worker."""

import json
from pathlib import Path

import pytest

from tests.workers.conftest import ONE_WORKER, Fleets, installed
from workers.command import FIELD_OF_FLAG, FIXED_FLAGS

CPU_WORKER = '[[workers]]\nid = "w0"\ndevice = "cpu"\nport = 8101\nserved_name = "smollm2"\n'
EVERY_FIELD = """
[[workers]]
id = "w0"
model = "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"
served_name = "q"
host = "10.0.0.5"
port = 8101
gpus = [2, 3]
tensor_parallel = 2
max_model_len = 131072
quantization = "gptq"
dtype = "float16"
kv_cache_dtype = "fp8"
chunked_prefill = false
prefix_caching = false
max_num_seqs = 64
max_num_batched_tokens = 131072
gpu_memory_gib = 80
gpu_memory_utilization = 0.85
long_prefill_token_threshold = 2048
max_num_queued_reqs = 100
shutdown_timeout_s = 30
keep_alive_s = 120
tool_call_parser = "hermes"
yarn = true
api_key_env = "WORKER_KEY"
extra_args = ["--seed", "7"]
env = { NCCL_P2P_DISABLE = "1" }
vllm = "/opt/vllm/bin/vllm"
"""


def cpu_command(fleets: Fleets, extra: str = "") -> tuple[list[str], dict[str, str]]:
    folder = Path("/opt/cpu")
    model = fleets.folder / "smollm2"
    model.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }
    (model / "config.json").write_text(json.dumps(config))
    (plan,) = fleets.plans(CPU_WORKER + extra, installed(folder / "bin/python", model))
    return list(plan.command.argv), plan.command.env


def test_a_gpu_worker_with_nothing_but_the_essentials(fleets: Fleets) -> None:
    command = fleets.plan().command
    assert " ".join(command.argv) == (
        "vllm serve Qwen/Qwen2.5-7B-Instruct --served-model-name Qwen2.5-7B-Instruct --host 127.0.0.1 "
        "--port 8101 --max-model-len 32768 --enable-chunked-prefill --enable-prefix-caching "
        "--max-num-seqs 256 --max-num-batched-tokens 4096 --long-prefill-token-threshold 1024 "
        "--max-num-queued-reqs 320 --shutdown-timeout 60 --disable-fastapi-docs --allowed-origins [] "
        "--fingerprint-mode none --disable-access-log-for-endpoints /health,/metrics "
        "--tensor-parallel-size 1 --gpu-memory-utilization 0.9"
    )
    assert command.env == {
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "75",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "0",
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    assert command.secrets == {}


def test_a_gpu_worker_with_every_field(fleets: Fleets) -> None:
    command = fleets.plans(EVERY_FIELD)[0].command
    yarn = (
        '{"max_position_embeddings":131072,"rope_parameters":{"rope_type":"yarn","rope_theta":1000000.0,'
        '"factor":4.0,"original_max_position_embeddings":32768}}'
    )
    assert " ".join(command.argv) == (
        "/opt/vllm/bin/vllm serve Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4 --served-model-name q --host 10.0.0.5 "
        "--port 8101 --max-model-len 131072 --dtype float16 --no-enable-chunked-prefill "
        "--no-enable-prefix-caching --max-num-seqs 64 --max-num-batched-tokens 131072 "
        "--long-prefill-token-threshold 2048 --max-num-queued-reqs 100 --shutdown-timeout 30 "
        "--enable-auto-tool-choice --tool-call-parser hermes --disable-fastapi-docs --allowed-origins [] "
        "--fingerprint-mode none --disable-access-log-for-endpoints /health,/metrics "
        "--tensor-parallel-size 2 --gpu-memory-utilization 0.85 --quantization gptq --kv-cache-dtype fp8 "
        f"--hf-overrides {yarn} --seed 7"
    )
    assert command.env["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] == "120"
    assert command.env["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert command.env["NCCL_P2P_DISABLE"] == "1"
    assert command.secrets == {"VLLM_API_KEY": "WORKER_KEY"}


def test_every_flag_that_is_generated_is_refused_in_extra_args(fleets: Fleets) -> None:
    gpu = fleets.plans(EVERY_FIELD)[0].command.argv[:-2]
    flags = {word for word in (*gpu, *cpu_command(fleets)[0]) if word.startswith("--")}
    positive = {flag.replace("--no-", "--") for flag in flags}
    assert positive <= FIELD_OF_FLAG.keys() | FIXED_FLAGS.keys()


def test_a_cpu_worker_is_unbound_and_single_threaded(fleets: Fleets) -> None:
    argv, env = cpu_command(fleets)
    assert argv[:3] == ["/opt/cpu/bin/python", "-m", "vllm.entrypoints.launchers.api_server.entry"]
    assert argv[3:7] == ["--model", str(fleets.folder / "smollm2"), "--served-model-name", "smollm2"]
    assert argv[-1] == "--enforce-eager"
    assert "--max-model-len 8192" in " ".join(argv)
    assert env == {
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "75",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "0",
        "PYTHONUNBUFFERED": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def test_a_cpu_worker_stays_on_the_core_it_is_given(fleets: Fleets) -> None:
    _, env = cpu_command(fleets, "cpu_core = 1\nkv_cache_gib = 2\n")
    assert env["VLLM_CPU_OMP_THREADS_BIND"] == "1"
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert "OMP_NUM_THREADS" not in env


def test_a_cpu_worker_may_bring_its_own_interpreter_and_model(fleets: Fleets) -> None:
    model = fleets.folder / "own"
    argv, _ = cpu_command(fleets)
    (fleets.folder / "smollm2").rename(model)
    text = CPU_WORKER + 'python = "/own/python"\nmodel = "./own"\n'
    assert fleets.plans(text)[0].command.argv[:5] == ("/own/python", *argv[1:4], str(model))


@pytest.mark.parametrize(("given", "taken"), [("python", "model"), ("model", "python")])
def test_what_a_cpu_worker_does_not_bring_is_taken_from_the_installation(
    fleets: Fleets, given: str, taken: str
) -> None:
    argv, _ = cpu_command(fleets)
    places = {"python": Path("/own/python"), "model": fleets.folder / "smollm2"}
    other = {"python": Path("/opt/cpu/bin/python"), "model": fleets.folder / "smollm2"}
    (plan,) = fleets.plans(
        CPU_WORKER + f'{given} = "{places[given]}"\n', installed(other["python"], other["model"])
    )
    own = {given: str(places[given]), taken: str(other[taken])}
    assert plan.command.argv == (own["python"], *argv[1:4], own["model"], *argv[5:])


def test_the_shell_line_quotes_what_a_shell_would_change_and_shows_no_secret(fleets: Fleets) -> None:
    line = fleets.plans(EVERY_FIELD)[0].command.shell_line()
    assert '  VLLM_API_KEY="$WORKER_KEY" \\\n  /opt/vllm/bin/vllm serve' in line
    assert '  --hf-overrides \'{"max_position_embeddings":131072,' in line
    assert "  --allowed-origins '[]' \\\n" in line
    assert line.endswith("  --seed 7")


def test_the_default_name_is_the_last_part_of_the_model(fleets: Fleets) -> None:
    argv = fleets.plans(ONE_WORKER)[0].command.argv
    assert argv[argv.index("--served-model-name") + 1] == "Qwen2.5-7B-Instruct"
