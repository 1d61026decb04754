"""The fleets in deploy/ can be planned, and vLLM takes every argument."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.workers.conftest import Fleets, installed
from tests.workers.test_command import EVERY_FIELD
from tests.workers.test_models import SMOLLM2, model_directory
from workers import cpu
from workers.plan import WorkerPlan, plan_fleet

DEPLOY = Path(__file__).parents[2] / "deploy"
PROFILES = sorted(DEPLOY.glob("fleet.*.toml"))

PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
for argv in json.load(sys.stdin):
    make_arg_parser(FlexibleArgumentParser()).parse_args(argv)
print("all accepted")
"""


def profile(name: str, model: Path) -> list[WorkerPlan]:
    return plan_fleet(DEPLOY / f"fleet.{name}.toml", installed(model / "python", model))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with the configuration of SmolLM2."""
    return Path(model_directory(tmp_path, SMOLLM2))


def test_every_profile_is_here() -> None:
    names = [path.name.split(".")[1] for path in PROFILES]
    assert names == ["2xtp2", "4xtp1", "cpu", "gptq", "long131k", "tp4"]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_every_profile_fits_and_says_when_to_choose_it(path: Path, model: Path) -> None:
    assert plan_fleet(path, installed(model / "python", model))
    assert "# Choose it " in path.read_text()


def test_the_profiles_hold_what_their_comments_say(model: Path) -> None:
    tokens = {name: profile(name, model)[0].memory.kv_tokens for name in ("tp4", "2xtp2", "4xtp1", "gptq")}
    assert {name: round(count, -4) for name, count in tokens.items()} == {
        "tp4": 1_200_000,
        "2xtp2": 460_000,
        "4xtp1": 100_000,
        "gptq": 260_000,
    }
    assert profile("tp4", model)[0].memory.requests_of(32_768) == 36
    assert profile("4xtp1", model)[0].memory.requests_of(32_768) == 2


def test_the_long_pool_serves_131k_under_a_name_of_its_own(model: Path) -> None:
    *short, long = profile("long131k", model)
    assert [plan.memory.max_model_len for plan in short] == [32_768, 32_768]
    assert long.memory.max_model_len == 131_072
    assert long.memory.requests_of(131_072) == 3
    assert long.worker.served_name not in {plan.worker.served_name for plan in short}


def test_the_cpu_profile_serves_smollm2_twice(model: Path) -> None:
    plans = profile("cpu", model)
    assert [(plan.worker.id, plan.worker.port) for plan in plans] == [("w0", 8101), ("w1", 8102)]
    assert {(plan.worker.served_name, plan.memory.max_model_len) for plan in plans} == {("smollm2", 2048)}


@pytest.mark.real
@pytest.mark.timeout(300)
def test_vllm_itself_accepts_every_argument(fleets: Fleets, model: Path) -> None:
    plans = [plan for path in PROFILES for plan in plan_fleet(path, installed(model / "python", model))]
    plans += fleets.plans(EVERY_FIELD)
    # What follows the entry point: `vllm serve …` and `python -m MODULE …` share one parser.
    argvs = [list(plan.command.argv[2 if plan.worker.device == "cuda" else 3 :]) for plan in plans]
    vllm = subprocess.run(
        [str(cpu.locate().python), "-c", PARSE],
        input=json.dumps(argvs),
        capture_output=True,
        text=True,
        cwd=fleets.folder,
        check=False,
    )
    assert vllm.stdout.endswith("all accepted\n"), vllm.stderr
