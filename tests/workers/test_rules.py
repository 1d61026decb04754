"""Each rule between settings, model and neighbours: broken it is reported, kept it is silent."""

import json

import pytest

from tests.workers.conftest import ONE_WORKER, Fleets, installed
from tests.workers.test_models import SMOLLM2, model_directory
from workers import rules
from workers.spec import CpuWorker, CudaWorker


def sharded(gpus: int, model: str = "Qwen2.5-7B-Instruct", extra: str = "") -> str:
    text = ONE_WORKER.replace("[0]", str(list(range(gpus)))).replace("Qwen2.5-7B-Instruct", model)
    return text + "gpu_memory_gib = 141\n" + extra


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "max_num_batched_tokens = 255",
            "workers[0].max_num_batched_tokens = 255: must be at least max_num_seqs (256): each running",
        ),
        (
            "max_num_queued_reqs = 255",
            "workers[0].max_num_queued_reqs = 255: must be at least max_num_seqs (256): it counts running",
        ),
        (
            "tensor_parallel = 2",
            "workers[0].tensor_parallel = 2: must equal the number of gpus (1); leave it out",
        ),
        (
            "max_model_len = 32769",
            "workers[0].max_model_len = 32769: the model goes up to 32768 tokens; `yarn = true` stretches",
        ),
        (
            "long_prefill_token_threshold = 1024\nmax_model_len = 1023",
            "workers[0].long_prefill_token_threshold = 1024: must be at most max_model_len (1023); 0 sw",
        ),
        (
            "chunked_prefill = false\nmax_model_len = 4097",
            "workers[0].max_num_batched_tokens = 4096: must be at least max_model_len (4097) without chunked",
        ),
        (
            "yarn = true\nmax_model_len = 32768",
            "workers[0].yarn = true: set max_model_len above 32768, or leave yarn out",
        ),
        (
            "yarn = true\nmax_model_len = 131073\ngpu_memory_gib = 80",
            "workers[0].max_model_len = 131073: the model goes up to 131072 tokens",
        ),
        (
            'quantization = "awq"',
            'workers[0].quantization = "awq": the checkpoint is "none"; leave it out',
        ),
        (
            "gpu_memory_gib = 18.3625",
            'workers[0].model = "Qwen/Qwen2.5-7B-Instruct": 14.2 GiB of weights (14.2 in all) and 2.3 GiB to',
        ),
        (
            "gpu_memory_gib = 16",
            'workers[0].model = "Qwen/Qwen2.5-7B-Instruct": 14.2 GiB of weights (14.2 in all) and 2.3 GiB to',
        ),
        (
            "yarn = true\nmax_model_len = 131072",
            "workers[0].max_model_len = 131072: one request of 131072 tokens takes 7.0 GiB of KV cache "
            "per GPU and 5.1 are left; set it to 95008 or less",
        ),
        (
            'extra_args = ["--seed", "7", "--max_model_len=5", "--no-enable-prefix-caching", "-tp", "2"]',
            "workers[0].extra_args: --max-model-len: set max_model_len instead; "
            "--enable-prefix-caching: set prefix_caching instead; -tp: set tensor_parallel instead",
        ),
        (
            'extra_args = ["--api-key", "x", "--allowed-origins", "*"]',
            "workers[0].extra_args: --api-key is not allowed: every user",
        ),
    ],
)
def test_a_broken_rule_is_reported_with_the_remedy(fleets: Fleets, lines: str, problem: str) -> None:
    assert fleets.problem(lines).startswith(problem)


@pytest.mark.parametrize(
    "lines",
    [
        "max_num_batched_tokens = 256",
        "max_num_queued_reqs = 256",
        "tensor_parallel = 1",
        "max_model_len = 32768",
        "long_prefill_token_threshold = 0\nmax_model_len = 512",
        "long_prefill_token_threshold = 1023\nmax_model_len = 1023",
        "chunked_prefill = false\nmax_model_len = 4096",
        "yarn = true\nmax_model_len = 32769",
        "yarn = true\nmax_model_len = 131072\ngpu_memory_gib = 80",
        'quantization = "none"',
        'extra_args = ["--seed", "7"]',
        "max_model_len = 32768\ngpu_memory_gib = 20.4",
    ],
)
def test_a_rule_just_kept_is_silent(fleets: Fleets, lines: str) -> None:
    assert fleets.plan(lines).worker.id == "w0"


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("suffix", ["", "-GPTQ-Int4", "-AWQ"])
def test_qwen_7b_divides_among_1_2_and_4_gpus(fleets: Fleets, gpus: int, suffix: str) -> None:
    assert fleets.plans(sharded(gpus, f"Qwen2.5-7B-Instruct{suffix}"))


@pytest.mark.parametrize(
    ("gpus", "model", "problem"),
    [
        (8, "Qwen2.5-7B-Instruct", "8 GPUs cannot share 28 heads; possible here: 1, 2, 4"),
        (
            7,
            "Qwen2.5-7B-Instruct",
            "7 GPUs can neither divide 4 KV heads nor copy them evenly; possible here: 1, 2, 4",
        ),
        (28, "Qwen2.5-7B-Instruct", "28 GPUs cannot share an MLP of 18944; possible here: 1, 2, 4"),
        (
            8,
            "Qwen2.5-14B-Instruct-AWQ",
            "each GPU must hold whole groups of 128 quantized weights, and MLP 13824 / 8 is no multiple "
            "of it; possible here: 1, 2, 4",
        ),
        (
            2,
            "Qwen2.5-0.5B-Instruct-GPTQ-Int4",
            "each GPU must hold whole groups of 128 quantized weights, and attention 896 / 2 is no "
            "multiple of it; possible here: 1",
        ),
    ],
)
def test_layers_that_cannot_be_divided_are_refused_with_what_can(
    fleets: Fleets, gpus: int, model: str, problem: str
) -> None:
    assert fleets.problems(sharded(gpus, model)) == [f"workers[0].tensor_parallel: {problem}"]


def test_kv_heads_may_be_copied_evenly(fleets: Fleets) -> None:
    # 40 heads and 8 KV heads with an MLP of 27648: 8 divide, and 16 would copy, but 40 / 16 is not whole.
    assert fleets.plans(sharded(8, "Qwen2.5-32B-Instruct"))
    # 16 heads and 2 KV heads: four GPUs hold each twice.
    assert fleets.plans(sharded(4, "Qwen2.5-3B-Instruct"))


def test_yarn_is_refused_for_a_checkpoint_that_is_scaled_already(fleets: Fleets) -> None:
    scaled = SMOLLM2 | {"rope_scaling": {"rope_type": "llama3"}}
    model = model_directory(fleets.folder, scaled)
    text = ONE_WORKER.replace("Qwen/Qwen2.5-7B-Instruct", model) + "yarn = true\nmax_model_len = 32768\n"
    (problem,) = fleets.problems(text)
    assert problem.startswith("workers[0].yarn = true: the checkpoint scales its context already")


def test_a_cpu_worker_must_hold_its_longest_request(fleets: Fleets) -> None:
    shape = {"layers": 30, "hidden_size": 576, "heads": 9, "kv_heads": 9, "head_dim": 64}
    rest = {"intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 32768}
    table = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (shape | rest).items())
    paths = 'python = "/p"\nmodel = "/m"'
    text = f'[[workers]]\nid = "w0"\ndevice = "cpu"\nport = 1\n{paths}\n[workers.shape]\n{table}'
    (problem,) = fleets.problems(text)
    assert problem == (
        "workers[0].max_model_len: one request of 32768 tokens takes 2.1 GiB of KV cache and there are 1; "
        "set it to 15488 or less, or raise kv_cache_gib"
    )
    enough = text.replace("port = 1\n", "port = 1\nkv_cache_gib = 3\n")
    assert fleets.plans(enough, installed(fleets.folder, fleets.folder))


def test_workers_do_not_share_ids_ports_or_gpus(fleets: Fleets) -> None:
    remedy = "is already taken by workers[0]; give each worker its own"
    assert fleets.problems(ONE_WORKER + ONE_WORKER) == [
        f'workers[1].id = "w0": w0 {remedy}',
        f"workers[1].port = 8101: 8101 {remedy}",
        f"workers[1].gpus = [0]: 0 {remedy}",
    ]


def test_cpu_workers_do_not_share_a_core(fleets: Fleets) -> None:
    worker = '[[workers]]\nid = "w0"\ndevice = "cpu"\nport = 1\ncpu_core = 3\n'
    other = worker.replace("w0", "w1").replace("port = 1", "port = 2")
    problem = fleets.problems(worker + other)[-1]
    assert problem == "workers[1].cpu_core = 3: 3 is already taken by workers[0]; give each worker its own"


def test_rules_name_fields_that_exist() -> None:
    # A misspelt name would let a rule be asked about a value that is already at fault.
    known = CudaWorker.model_fields.keys() | CpuWorker.model_fields.keys()
    tables = [
        rules.SETTING_RULES,
        rules.CUDA_SETTING_RULES,
        rules.MODEL_RULES,
        rules.SHARDING_RULES,
        rules.YARN_RULES,
        rules.CUDA_MEMORY_RULES,
        rules.CPU_MEMORY_RULES,
    ]
    assert {field for table in tables for fields in table for field in fields} <= known
