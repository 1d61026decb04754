"""Does the command serve as many workers as asked for, end when told, and print how good the engine is?"""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from benchmarks.simulator import __main__ as command
from benchmarks.simulator import fit
from benchmarks.simulator.costs import Costs
from benchmarks.simulator.measured import ClosedLoop
from benchmarks.simulator.report import Row


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_with_the_flags_given_until_a_signal(number: signal.Signals) -> None:
    flags = ["--max-model-len", "512", "--kv-tokens", "512", "--speed", "1000"]
    arguments = ["serve", "--port", "0", "--count", "2", "--model", "qwen", *flags]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.simulator", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    urls = [
        (await process.stdout.readline()).decode().strip().removeprefix("listening on ") for _ in range(2)
    ]
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        cards = [(await client.get(f"{url}/v1/models")).json()["data"][0] for url in urls]
        answer = await client.post(f"{urls[1]}/v1/completions", json={"prompt": "abcd", "ignore_eos": True})
        metrics = [(await client.get(f"{url}/metrics")).text for url in urls]
    process.send_signal(number)
    await process.communicate()

    assert [(card["id"], card["max_model_len"]) for card in cards] == [("qwen", 512)] * 2
    assert answer.json()["usage"]["completion_tokens"] == 16
    told = 'vllm:generation_tokens_total{engine="0",model_name="qwen"} '
    assert [told + tokens in text for tokens, text in zip(("0.0", "16.0"), metrics, strict=True)] == [
        True,
        True,
    ]
    assert process.returncode == 0


def test_workers_have_consecutive_ports_and_none_stays_where_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[socket.socket] = []

    def listener(host: str, port: int) -> socket.socket:
        if len(opened) == 2:
            raise OSError("taken")
        ports.append(port)
        opened.append(socket.create_server((host, 0)))
        return opened[-1]

    ports: list[int] = []
    monkeypatch.setattr(command, "_listener", listener)

    result = run("serve", "--port", "8101", "--count", "3", "--model", "qwen")

    assert (result.exit_code, ports) == (2, [8101, 8102])
    assert "taken" in result.stderr
    assert [one.fileno() for one in opened] == [-1, -1]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--kv-tokens", "100"], "max_model_len"),
        (["--max-num-batched-tokens", "8"], "max_num_seqs"),
        (["--port", "65535", "--count", "2"], "port"),
    ],
)
def test_what_cannot_be_served_is_said(flags: list[str], problem: str) -> None:
    result = run("serve", "--port", "0", "--model", "qwen", *flags)

    assert result.exit_code == 2
    assert problem in result.stderr


def test_validate_prints_how_far_the_engine_is_from_the_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("one", "", "ttft_p50", 1.0, 1.1), Row("other", "", "ttft_p50", 1.0, 2.0)]
    monkeypatch.setattr("benchmarks.simulator.report.rows", lambda measurements, costs: rows)

    result = run("validate")

    assert result.exit_code == 0
    assert "+100%" in result.stdout
    assert result.stdout.endswith("1 of 2 figures within 20%\n")


def test_fit_keeps_what_it_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = Costs(*(float(f"1e-{power}") for power in range(2, 9)))
    given: list[Sequence[ClosedLoop]] = []

    def fitted(loads: Sequence[ClosedLoop]) -> Costs:
        given.append(loads)
        return found

    monkeypatch.setattr(fit, "fit", fitted)
    monkeypatch.setattr(fit, "residuals", lambda loads, costs: {})
    file = tmp_path / "fit.json"

    result = run("fit", "--output", str(file))

    assert result.exit_code == 0
    assert len(given[0]) == 11
    assert Costs.load(file) == found
    assert json.loads(file.read_text(encoding="utf-8"))["relative_errors"] == {}
