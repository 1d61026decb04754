"""What a worker's fields take, and how a fault in one is told."""

import pytest

from tests.workers.conftest import ONE_WORKER, Fleets


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "gpus = [1, 1]",
            "workers[0].gpus = [1, 1]: a GPU is named twice; allowed: GPU numbers as nvidia-smi",
        ),
        ("gpus = []", "workers[0].gpus = []: Tuple should have at least 1 item"),
        (
            'gpus = [0, "1"]',
            'workers[0].gpus[1] = "1": should be a valid integer; allowed: GPU numbers',
        ),
        (
            "port = 70000",
            "workers[0].port = 70000: should be less than or equal to 65535; allowed: a free",
        ),
        ('id = "a/b"', 'workers[0].id = "a/b": String should match pattern'),
        ("model = 7", "workers[0].model = 7: should be a valid string; allowed: a directory"),
        (
            "shape = { layers = 0 }",
            "workers[0].shape.layers = 0: should be greater than 0; allowed: number",
        ),
        ("max_num_seq = 1", "workers[0].max_num_seq: unknown field; did you mean max_num_seqs?"),
        ("zzz = 1", "workers[0].zzz: unknown field for this device; known: api_key_env, chunked_prefill"),
        ('device = "tpu"', 'workers[0].device = "tpu": must be "cuda" or "cpu"'),
        ("device = 1", 'workers[0].device = 1: must be "cuda" or "cpu"'),
        (
            "gpu_memory_gib = inf",
            "workers[0].gpu_memory_gib = Infinity: should be a finite number; allowed: mem",
        ),
        (
            'host = "example"',
            "workers[0].host = \"example\": 'example' does not appear to be an IPv4 or IPv6",
        ),
        ("max_num_seqs = true", "workers[0].max_num_seqs = true: should be a valid integer"),
        (
            "gpu_memory_utilization = 1.5",
            "workers[0].gpu_memory_utilization = 1.5: should be less than",
        ),
        ('api_key_env = "sk-1"', "workers[0].api_key_env: String should match pattern"),
        (
            'env = { VLLM_SERVER_DEV_MODE = "1", HF_TOKEN = "x" }',
            "workers[0].env: VLLM_SERVER_DEV_MODE: development mode lets any caller run code in the worker; "
            "leave it out; HF_TOKEN: no secrets in this file; export it",
        ),
    ],
)
def test_a_faulty_field_is_named_with_its_value_and_what_is_allowed(
    fleets: Fleets, line: str, problem: str
) -> None:
    name = line.split(" = ", maxsplit=1)[0]
    kept = [row for row in ONE_WORKER.splitlines() if not row.startswith(f"{name} =")]
    found = fleets.problems("\n".join([*kept, line]))
    assert found[0].startswith(problem)


def test_a_misspelt_dimension_is_named_too(fleets: Fleets) -> None:
    found = fleets.problems(ONE_WORKER + "shape = { layer = 28 }")
    assert "workers[0].shape.layer: unknown field; did you mean layers?" in found
    assert "workers[0].shape.layers: missing; give number of decoder layers" in found


@pytest.mark.parametrize(
    "line",
    [
        'env = { HF_TOKEN = "hf-secret" }',
        'extra_args = ["--api-key", "hf-secret"]',
        'api_key_env = "hf-secret"',
        'api_key = "hf-secret"',
    ],
)
def test_no_problem_shows_a_secret_that_stands_in_the_wrong_place(fleets: Fleets, line: str) -> None:
    assert "hf-secret" not in fleets.problem(line)


def test_missing_fields_say_what_to_give(fleets: Fleets) -> None:
    found = fleets.problems("[[workers]]\n")
    assert [line.split(";")[0] for line in found] == [
        "workers[0].id: missing",
        "workers[0].port: missing",
        "workers[0].model: missing",
        "workers[0].gpus: missing",
    ]
    assert found[1] == "workers[0].port: missing; give a free port, 1 to 65535"
