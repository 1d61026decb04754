"""What do users of such gateways suffer from, and which tests show that they do not here?

    python -m tests.field_cases                      # run all tests of all cases
    python -m tests.field_cases --times 5            # five times in a row, up to the first failure
    python -m tests.field_cases --case S1 --case L3  # of these alone
    python -m tests.field_cases --list               # which tests show what
    python -m tests.field_cases -m "not real"        # all other arguments go to pytest

A test shows a case, or a part of it, if it is marked: @pytest.mark.case("S1"). The cases are faults that were
reported in public; where several reports tell of one fault, they are one case.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
MARKER = "pytest.mark.case"


@dataclass(frozen=True)
class Case:
    """reports: issues of public trackers, owner/repository#number; several numbers follow one name."""

    id: str
    suffered: str
    reports: str


@dataclass(frozen=True)
class Marked:
    """A test and the cases that its markers name."""

    node: str  # as pytest names it
    cases: tuple[object, ...]


CASES = (
    # Streams
    Case(
        "S1",
        "Somebody presses Stop, and the GPU goes on to the last token for nobody.",
        "BerriAI/litellm#30244, #9178; QuantumNous/new-api#4186; maximhq/bifrost#732",
    ),
    Case(
        "S2",
        "Who leaves before the first byte is not noticed until the prompt has been read, or the answer made.",
        "BerriAI/litellm#31499; smg-project/smg#2136; lemonade-sdk/lemonade#3133; 1rgs/claude-code-proxy#114",
    ),
    Case(
        "S3",
        "Characters of several bytes arrive as U+FFFD where the network cut them.",
        "api7/aisix#111; katanemo/plano#980; musistudio/claude-code-router#1672",
    ),
    Case(
        "S4",
        "Tokens come in clumps, or all at the end, to clients that accept compression.",
        "Kludex/starlette#2753, #3230; goodrain/rainbond-console#1909; vercel/ai#12691",
    ),
    Case(
        "S5",
        "A worker dies amid its answer, and what came so far is stored as a whole one.",
        "BerriAI/litellm#33404, #33222, #39748; open-webui/open-webui#29628",
    ),
    Case(
        "S6",
        "A long prompt is cut off as dead, because nothing comes while it is read.",
        "BerriAI/litellm#34819, #37322; vllm-project/vllm#51034, #47647",
    ),
    Case(
        "S7",
        "Clients fall over an event without choices that they never asked for.",
        "headroomlabs-ai/headroom#2026; BerriAI/litellm#28735, #29431; envoyproxy/ai-gateway#936; "
        "entrius/gittensor#1750",
    ),
    Case(
        "S8",
        "A client that stops reading fills the memory, or holds its place for ever.",
        "Kludex/uvicorn#2754; Dstack-TEE/private-ai-gateway#44",
    ),
    # Connections
    Case(
        "C1",
        "After a burst of cancelled calls no worker can be reached until a restart.",
        "encode/httpcore#1093, #830, #986; encode/httpx#1461",
    ),
    Case(
        "C2",
        "Now and then a call fails after a quiet spell, on a connection that was closed meanwhile.",
        "kserve/kserve#5446; vllm-project/vllm#18472; vllm-project/vllm-omni#1374; wso2/api-platform#3429",
    ),
    Case(
        "C3", "One worker that hangs makes calls to all the others hang.", "vllm-project/production-stack#749"
    ),
    Case(
        "C4",
        "A thousand calls at once end in connection errors on an idle fleet.",
        "openai/openai-python#769, #821; encode/httpx#3215; BerriAI/litellm#19711",
    ),
    # Limits
    Case(
        "L1",
        "A key is refused for ever with nothing under way, as slots are not given back.",
        "BerriAI/litellm#27955, #30020, #28160, #20256, #1477",
    ),
    Case(
        "L2",
        "A limit is granted once by every process.",
        "BerriAI/litellm#13202, #6938, #10037, #40291",
    ),
    Case(
        "L3",
        "Streams are not charged, or twice.",
        "BerriAI/litellm#41610; higress-group/higress#2918, #1080; PostHog/posthog#45116",
    ),
    Case(
        "L4",
        "A refusal does not say when to come back, or not the truth.",
        "BerriAI/litellm#4695, #27823, #30098; openai/openai-python#3555",
    ),
    Case(
        "L5",
        "A small budget is refused its first call, or locked by what was only reserved.",
        "BerriAI/litellm#29193, #27001, #18953",
    ),
    Case(
        "L6",
        "Redis stands still, and so does every request.",
        "BerriAI/litellm#35273, #40620; api7/aisix#1147; Future-House/ldp#460",
    ),
    Case(
        "L7",
        "One tenant is judged by the counters of another, whose call was cancelled.",
        "redis/redis-py#2624, #2665, #4123, #2517",
    ),
    # The queue
    Case(
        "Q1",
        "Callers who have given up are served all the same, while others wait.",
        "kubeai-project/kubeai#18; Entrpi/ds4#3; vllm-project/vllm#2901",
    ),
    Case(
        "Q2",
        "Under overload everybody waits and nobody is served, also after it.",
        "vllm-project/vllm#18826, #13395, #49445; ephpm/ephpm#301",
    ),
    Case(
        "Q3",
        "One long prompt, or one tenant's burst, delays everybody.",
        "vllm-project/vllm-ascend#11352; vllm-project/vllm#16969; "
        "kubernetes-sigs/gateway-api-inference-extension#1797",
    ),
    # Errors
    Case(
        "E1",
        "A stream that the worker refuses begins with 200, and holds the error or nothing.",
        "inference-gateway/inference-gateway#578; openclaw/clawrouter#101; QuantumNous/new-api#1178; "
        "easychen/openai-api-proxy#33",
    ),
    Case(
        "E2",
        "An answer is cut short or cannot be decoded, as it has the worker's framing and not its own.",
        "sgl-project/sglang#27523; BerriAI/litellm#25624; vllm-project/production-stack#836; "
        "radixark/miles#851",
    ),
    Case(
        "E3",
        "Refused prompts take a healthy worker out; one that fails at once attracts everybody.",
        "sgl-project/sglang#25811, #39464; AMD-AGI/Infera#82",
    ),
    Case(
        "E4",
        "Errors tell callers the names and addresses of workers.",
        "keboola/keboola-as-code#2641; newrelic-experimental/preflight#144; NVIDIA-NeMo/Switchyard#649",
    ),
    # Bodies
    Case(
        "B1",
        "Fields that the gateway does not know get lost on the way.",
        "vllm-project/semantic-router#3573; headroomlabs-ai/headroom#2128; NVIDIA-NeMo/Guardrails#2060",
    ),
    Case(
        "B2",
        "Prompts that are not plain text crash what measures them.",
        "vllm-project/production-stack#1037; ray-project/ray#64328",
    ),
    Case(
        "B3",
        "Images are refused, or stop everybody else while they are read.",
        "mnfst/llm-gateway#2290; BerriAI/litellm#31497, #40565",
    ),
    # Keys
    Case(
        "A1",
        "An empty or odd credential opens the door.",
        "bug-ops/zeph#6268; ahopkins/sanic-jwt#143; elasticdotventures/_b00t_#529; "
        "msaleme/red-team-blue-team-agent-fabric#503; Alishahryar1/free-claude-code#262",
    ),
    Case(
        "A2",
        "Keys can be read in errors and logs.",
        "BerriAI/litellm#39757, #40217, #18731, #25203, #7603",
    ),
    Case(
        "A3",
        "A path that is written in another way needs no key.",
        "vllm-project/vllm#58144, #43426, #10531, #52794, #42064",
    ),
    # Models
    Case(
        "M1",
        "A model whose workers are down is said not to exist.",
        "vllm-project/production-stack#889; gpustack/gpustack#6038",
    ),
    Case(
        "M2",
        "One worker that is down breaks the list of models.",
        "vllm-project/router#135; sgl-project/sglang#10827; maximhq/bifrost#3342; "
        "vllm-project/production-stack#892",
    ),
    # Metrics
    Case(
        "X1",
        "Whatever callers invent becomes a metric of its own, until the memory is full.",
        "BerriAI/litellm#39136, #12159, #27272; llm-d/llm-d-batch-gateway#202",
    ),
    Case(
        "X2",
        "Processes that have died are counted on.",
        "prometheus/client_python#495, #566, #518; skypilot-org/skypilot#9689",
    ),
    # In operation
    Case(
        "D1",
        "A new version cuts streams off, or the old one never ends.",
        "PostHog/posthog#73863; vllm-project/vllm#24885; Kludex/uvicorn#451, #2913; kserve/kserve#5496",
    ),
    Case(
        "D2",
        "Busy processes and workers are taken for dead, and so one after the other falls.",
        "vllm-project/production-stack#431; BerriAI/litellm#12669; llm-d/llm-d-benchmark#1734; "
        "gonka-ai/gonka#1421",
    ),
    Case(
        "Z1",
        "A caller has the gateway send calls, and the worker's key, where it likes.",
        "BerriAI/litellm#37053, #5418, #26996; mlflow/mlflow#25761",
    ),
)

# Those of which no test is marked yet. It only gets shorter, and goes when it is empty.
STILL_TO_COME = {"C3", "E3", "A1", "A2", "A3", "M1", "M2", "X1", "X2", "Z1"}


def marked(folder: Path = TESTS) -> Iterator[Marked]:
    """The tests below a folder that show cases."""
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
                marks = [call for call in calls if ast.unparse(call.func) == MARKER]
                if marks:
                    cases = tuple(ast.literal_eval(value) for mark in marks for value in mark.args)
                    yield Marked(f"{path.relative_to(folder.parent)}::{node.name}", cases)


def main(argv: Sequence[str], folder: Path = TESTS) -> int:
    """Returns the exit status of the last run of pytest. folder: where the tests are."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.field_cases",
        description="Run the tests of faults that users of such gateways reported.",
        epilog="All other arguments go to pytest.",
    )
    known = [case.id for case in CASES]
    parser.add_argument("--case", action="append", choices=known, help="of this one alone; may be repeated")
    parser.add_argument("--times", type=int, default=1, help="so often in a row, up to the first failure")
    parser.add_argument("--list", action="store_true", help="say which tests show what, and run none")
    options, for_pytest = parser.parse_known_args(argv)
    wanted = set(options.case or known)
    if options.list:
        print("\n".join(_listed(wanted, folder)))
        return 0
    nodes = [test.node for test in marked(folder) if wanted.intersection(test.cases)]
    if not nodes:
        parser.error(f"no test shows {', '.join(sorted(wanted))} yet")
    status = 0
    for turn in range(1, options.times + 1):
        print(f"\n--- {turn} of {options.times}", flush=True)
        command = [sys.executable, "-m", "pytest", *for_pytest, *nodes]
        status = subprocess.run(command, cwd=folder.parent, check=False).returncode
        if status != 0:
            break
    return status


def _listed(wanted: set[str], folder: Path) -> Iterator[str]:
    tests = list(marked(folder))
    for case in CASES:
        if case.id in wanted:
            yield f"\n{case.id}  {case.suffered}\n    {case.reports}"
            yield from (f"    - {test.node}" for test in tests if case.id in test.cases)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
