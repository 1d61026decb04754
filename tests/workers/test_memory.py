"""The memory plan's figures, against measured and published ones."""

import pytest

from tests.workers.conftest import ONE_WORKER, Fleets
from workers.memory import GIB, kv_heads_per_gpu, kv_token_bytes, memory_plan, weights_bytes
from workers.models import KNOWN_SHAPES, Shape
from workers.spec import CpuWorker

QWEN_7B = KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"]
QWEN_7B_GPTQ = KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"]
SMOLLM2 = Shape(
    layers=30,
    hidden_size=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49152,
    max_position_embeddings=8192,
    tied_embeddings=True,
)


def test_a_cpu_worker_caches_as_many_tokens_as_vllm_was_seen_to() -> None:
    worker = CpuWorker(id="w0", port=1, device="cpu", kv_cache_gib=1)
    assert memory_plan(worker, SMOLLM2).kv_tokens == 46_592


def test_a_cpu_worker_takes_about_the_3_gb_that_were_measured() -> None:
    worker = CpuWorker(id="w0", port=1, device="cpu", max_num_seqs=4, max_num_batched_tokens=2048)
    assert memory_plan(worker, SMOLLM2).budget_bytes == pytest.approx(3.0e9, rel=0.05)


def test_unquantized_weights_take_two_bytes_each() -> None:
    assert weights_bytes(QWEN_7B, 1, 2) == 2 * QWEN_7B.parameters


def test_gptq_weights_are_as_large_as_the_published_checkpoint() -> None:
    assert weights_bytes(QWEN_7B_GPTQ, 1, 2) == pytest.approx(5.57e9, rel=0.01)


def test_sharding_divides_all_weights_but_the_small_ones() -> None:
    whole = 2 * (QWEN_7B.linear_parameters + QWEN_7B.embedding_parameters)
    assert weights_bytes(QWEN_7B, 4, 2) == whole // 4 + 2 * QWEN_7B.small_parameters


def test_a_cached_token_takes_56_kib_and_a_quarter_on_each_of_four_gpus() -> None:
    assert kv_token_bytes(QWEN_7B, 1, 2) == 56 * 1024
    assert kv_token_bytes(QWEN_7B, 4, 2) == 14 * 1024
    assert kv_token_bytes(QWEN_7B, 4, 1) == 7 * 1024


def test_kv_heads_are_copied_where_there_are_fewer_than_gpus() -> None:
    assert kv_heads_per_gpu(QWEN_7B, 8) == 1
    # Four heads' keys and values in every layer exist twice on eight GPUs.
    copies = 28 * 2 * 3584 * 128 * 4
    large = QWEN_7B.linear_parameters + QWEN_7B.embedding_parameters + copies
    assert weights_bytes(QWEN_7B, 8, 2) == 2 * large // 8 + 2 * QWEN_7B.small_parameters


def test_the_parts_add_up_to_the_budget(fleets: Fleets) -> None:
    memory = fleets.plan("gpu_memory_gib = 80\ngpu_memory_utilization = 0.5").memory
    assert memory.budget_bytes == 40 * GIB
    assert memory.needed_bytes + memory.kv_bytes == memory.budget_bytes


def test_four_small_cards_hold_36_requests_of_32k(fleets: Fleets) -> None:
    pooled = fleets.plans(ONE_WORKER.replace("[0]", "[0, 1, 2, 3]"))[0].memory
    assert pooled.requests_of(32_768) == 36
    assert pooled.requests_of(131_072) == 9


def test_requests_take_whole_blocks(fleets: Fleets) -> None:
    memory = fleets.plan().memory
    assert memory.kv_bytes_for(17) == 32 * memory.kv_token_bytes
    assert memory.requests_of(17) == memory.kv_tokens // 32
    assert memory.kv_tokens % 16 == 0


@pytest.mark.parametrize(
    ("line", "factor"), [('kv_cache_dtype = "fp8"', 0.5), ('dtype = "float32"\ngpu_memory_gib = 80', 2.0)]
)
def test_the_cache_follows_the_element_size(fleets: Fleets, line: str, factor: float) -> None:
    assert fleets.plan(line).memory.kv_token_bytes == factor * 56 * 1024


def test_a_larger_step_and_batch_leave_less_for_the_cache(fleets: Fleets) -> None:
    usual = fleets.plan().memory
    # 4,096 more tokens of four hidden states and three MLP rows, two bytes each.
    wide = fleets.plan("max_num_batched_tokens = 8192").memory
    assert usual.kv_bytes - wide.kv_bytes == 4096 * (4 * 3584 + 3 * 18944) * 2
    # 128 fewer rows of logits.
    narrow = fleets.plan("max_num_seqs = 128").memory
    assert narrow.kv_bytes - usual.kv_bytes == 128 * 152_064 * 22
