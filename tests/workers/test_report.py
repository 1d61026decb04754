"""How a plan reads."""

import json

from tests.workers.conftest import ONE_WORKER, Fleets, installed
from tests.workers.test_models import SMOLLM2
from workers.report import report


def comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def test_a_gpu_worker_shows_how_its_memory_divides_and_what_fits(fleets: Fleets) -> None:
    assert comments(report([fleets.plan("gpu_memory_gib = 80\nyarn = true\nmax_model_len = 131072")])) == [
        "# w0: Qwen2.5-7B-Instruct on GPU 0 (tensor parallel 1), http://127.0.0.1:8101",
        "#   per GPU          72.00 GiB (90% of 80 GiB)",
        "#     weights        14.19 GiB",
        "#     to run         2.34 GiB (activations, runtime; estimated)",
        "#     KV cache       55.47 GiB, 56 KiB a token per GPU",
        "#   KV tokens        1,038,720",
        "#   fits at once     31 requests of 32,768 tokens",
        "#   fits at once     7 requests of 131,072 tokens",
        "#   full batch       256 sequences of 4,057 tokens on average",
    ]


def test_a_cpu_worker_shows_its_whole_memory(fleets: Fleets) -> None:
    model = fleets.folder
    (model / "config.json").write_text(json.dumps(SMOLLM2))
    worker = '[[workers]]\nid = "w0"\ndevice = "cpu"\nport = 1\nmax_model_len = 2048\n'
    pinned = worker.replace("w0", "w1").replace("= 1\n", "= 2\n") + "cpu_core = 1\n"
    text = report(fleets.plans(worker + pinned, installed(model / "python", model)))
    assert comments(text)[0].endswith(" on 1 CPU thread(s), http://127.0.0.1:1")
    assert "#     KV cache       1.00 GiB, 22.5 KiB a token" in comments(text)
    assert "#   KV tokens        46,592" in comments(text)
    assert " on CPU core 1, http://127.0.0.1:2" in text


def test_a_worker_that_others_can_reach_without_a_key_is_pointed_out(fleets: Fleets) -> None:
    note = "#   note: it can be reached from other machines and asks for no key; set api_key_env"
    assert note not in report([fleets.plan()])
    assert note in report([fleets.plan('host = "0.0.0.0"')])
    assert note not in report([fleets.plan('host = "0.0.0.0"\napi_key_env = "KEY"')])


def test_workers_are_parted_by_a_blank_line(fleets: Fleets) -> None:
    second = ONE_WORKER.replace("w0", "w1").replace("8101", "8102").replace("[0]", "[1]")
    first, other = report(fleets.plans(ONE_WORKER + second)).split("\n\n")
    assert first.startswith("# w0: ")
    assert other.startswith("# w1: ")
    assert other.endswith("--gpu-memory-utilization 0.9\n")
