"""From a fleet file to plans: how models are found and refusals gathered."""

from tests.workers.conftest import ONE_WORKER, Fleets
from workers.models import KNOWN_SHAPES


def test_an_unknown_model_is_refused_with_the_fields_to_give(fleets: Fleets) -> None:
    (problem,) = fleets.problems(ONE_WORKER.replace("Qwen/Qwen2.5-7B-Instruct", "acme/own-7b"))
    assert problem.startswith('workers[0].model = "acme/own-7b": neither a directory')
    assert "[workers.shape]: layers, hidden_size" in problem


def test_a_shape_in_the_file_stands_in_for_an_unknown_model(fleets: Fleets) -> None:
    shape = """
        [workers.shape]
        layers = 28
        hidden_size = 3584
        heads = 28
        kv_heads = 4
        head_dim = 128
        intermediate_size = 18944
        vocab_size = 152064
        max_position_embeddings = 32768
        rope_theta = 1000000
        attention_bias = true
    """
    text = ONE_WORKER.replace("Qwen/Qwen2.5-7B-Instruct", "acme/own-7b") + shape
    (plan,) = fleets.plans(text)
    assert plan.shape == KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"]
    assert plan.memory == fleets.plan().memory


def test_a_cpu_worker_without_its_environment_says_how_to_install_it(fleets: Fleets) -> None:
    (problem,) = fleets.problems('[[workers]]\nid = "w0"\ndevice = "cpu"\nport = 1\n')
    assert problem == "workers[0].python: left out, and run `python -m workers.cpu`"


def test_a_wrong_model_does_not_hide_the_clashes_between_workers(fleets: Fleets) -> None:
    broken = ONE_WORKER.replace('"Qwen/Qwen2.5-7B-Instruct"', "7")
    found = fleets.problems(broken + ONE_WORKER)
    assert [line.split(" = ")[0] for line in found] == [
        "workers[0].model",
        "workers[1].id",
        "workers[1].port",
        "workers[1].gpus",
    ]


def test_workers_whose_ids_are_both_wrong_do_not_clash(fleets: Fleets) -> None:
    first = ONE_WORKER.replace('"w0"', "0")
    second = first.replace("8101", "8102").replace("[0]", "[1]")
    assert [line.split(" = ")[0] for line in fleets.problems(first + second)] == [
        "workers[0].id",
        "workers[1].id",
    ]
