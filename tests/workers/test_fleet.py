"""Fleet files: what is read, and how each fault is reported."""

import re
from pathlib import Path

import pytest

from tests.workers.conftest import ONE_WORKER, Fleets
from workers.fleet import load
from workers.problems import Refused
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
