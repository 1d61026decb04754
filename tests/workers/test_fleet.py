"""Fleet files: what is read, and how each fault is reported."""

import re
from pathlib import Path

import pytest

from tests.workers.conftest import ONE_WORKER, Fleets
from workers.fleet import load
from workers.problems import Problem, Refused
from workers.spec import CudaWorker


def test_defaults_hold_for_every_worker_that_does_not_say_otherwise(fleets: Fleets) -> None:
    text = """
        [defaults]
        model = "Qwen/Qwen2.5-7B-Instruct"
        max_num_seqs = 64
        env = { A = "1", B = "1" }
        [[workers]]
        id = "w0"
        port = 1
        gpus = [0]
        [[workers]]
        id = "w1"
        port = 2
        gpus = [1]
        max_num_seqs = 32
        env = { B = "2" }
    """
    first, second = (entry.worker for entry in load(fleets.file(text)))
    assert (first.max_num_seqs, second.max_num_seqs) == (64, 32)
    assert (first.env, second.env) == ({"A": "1", "B": "1"}, {"A": "1", "B": "2"})


def test_paths_count_from_the_fleet_file_and_names_stay_names(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    extra = 'model = "./models/a"\nvllm = "~/bin/vllm"\n'
    text = ONE_WORKER.replace('model = "Qwen/Qwen2.5-7B-Instruct"\n', extra)
    worker = load(fleets.file(text))[0].worker
    assert isinstance(worker, CudaWorker)
    assert (worker.model, worker.vllm) == (str(fleets.folder / "models/a"), "/home/ada/bin/vllm")
    named = load(fleets.file(ONE_WORKER))[0].worker
    assert isinstance(named, CudaWorker)
    assert (named.model, named.vllm) == ("Qwen/Qwen2.5-7B-Instruct", "vllm")


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


def test_every_problem_of_every_worker_is_reported_at_once(fleets: Fleets) -> None:
    text = """
        [[workers]]
        id = "w0"
        model = "acme/unknown"
        port = "8101"
        gpus = [0, 0]
        max_num_batched_tokens = 128
        [[workers]]
        id = "w0"
        model = "Qwen/Qwen2.5-7B-Instruct"
        port = 8102
        gpus = [1, 2, 3]
        dtype = "int3"
        [[workers]]
        id = "w2"
        device = "cpu"
        port = 8102
        gpus = [1]
    """
    assert [re.split(" = |;", line)[0] for line in fleets.problems(text)] == [
        "workers[0].port",
        "workers[0].gpus",
        "workers[0].max_num_batched_tokens",
        "workers[0].model",
        "workers[1].dtype",
        "workers[1].tensor_parallel: 3 GPUs cannot share 28 heads",
        "workers[2].gpus: unknown field for this device",
        "workers[2].python: left out, and run `python -m workers.cpu`",
        "workers[1].id",
        "workers[2].port",
    ]


def test_a_fault_in_the_defaults_is_reported_there_and_once(fleets: Fleets) -> None:
    second = ONE_WORKER.replace("w0", "w1").replace("8101", "8102").replace("[0]", "[1]")
    found = fleets.problems("[defaults]\nmax_num_seqs = 0\n" + ONE_WORKER + second)
    assert [line.split(":")[0] for line in found] == ["defaults.max_num_seqs = 0"]


def test_a_worker_of_no_known_device_is_still_checked_elsewhere(fleets: Fleets) -> None:
    text = '[[workers]]\nid = "w0"\ndevice = "tpu"\nmodel = "a/b"\nport = 0\ncpu_core = 1\n'
    found = fleets.problems(text)
    assert [line.split(" = ")[0] for line in found[:2]] == ["workers[0].device", "workers[0].port"]
    assert not any("cpu_core" in line or "gpus" in line for line in found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "workers: a fleet needs at least one [[workers]] table"),
        ("[workers]\nid = 1", "workers: write each worker as a table: [[workers]]"),
        ("workers = [1]", "workers: write each worker as a table: [[workers]]"),
        ("defaults = 1", "defaults: write it as a table: [defaults]"),
        ("[worker]", "worker: unknown; a fleet file has [defaults] and [[workers]]"),
    ],
)
def test_a_file_without_workers_is_refused(fleets: Fleets, text: str, problem: str) -> None:
    assert problem in fleets.problems(text)


def test_a_file_that_is_not_toml_is_refused_with_the_place(fleets: Fleets) -> None:
    (problem,) = fleets.problems("[[workers]]\nid =\n")
    assert problem.startswith(f"{fleets.folder / 'fleet.toml'}: is not valid TOML: Invalid value (at line 2")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"absent.toml: cannot be read: No such file"):
        load(tmp_path / "absent.toml")


def test_long_values_are_cut_short() -> None:
    shown = str(Problem("workers[0].id", "too long", "x" * 200))
    assert shown == f'workers[0].id = "{"x" * 78}…: too long'
