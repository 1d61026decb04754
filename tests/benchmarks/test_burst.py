"""Does the command measure, report and fail as it says? Run as people run it, over a real socket."""

import asyncio
import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.burst.__main__ import POOL_LIMIT, main
from benchmarks.command import allow_open_files
from tests.fakes import FakeWorker, Received, Reply
from tests.vllm_answers import answer_of, response_head

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


async def run(*arguments: str, key: str | None = "sk-test") -> Result:
    keyed = [*arguments, "--api-key", key] if key else list(arguments)
    return await asyncio.to_thread(CliRunner().invoke, main, keyed, catch_exceptions=False)


async def refuse(request: Received, reply: Reply) -> None:
    error = {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
    await reply.json({"error": error}, status=429)


async def test_a_burst_where_all_is_well_prints_a_table_and_exits_with_0() -> None:
    async with FakeWorker(answer_of(3)) as worker:
        result = await run("--base-url", f"{worker.url}/v1", "--requests", "5")

    assert result.exit_code == 0, result.output
    assert "chat, streamed, smollm2" in result.stdout
    assert "5 / 0" in result.stdout
    assert "35 / 15" in result.stdout  # tokens in and out
    assert "5/5 0 failed" in result.stderr
    assert len(worker.requests) == 5


async def test_the_default_is_a_burst_of_100_different_prompts_all_at_once() -> None:
    hold = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await hold.wait()
        await answer_of(1)(request, reply)

    async with FakeWorker(script) as worker:
        running = asyncio.create_task(run("--base-url", f"{worker.url}/v1"))
        await worker.received(100)
        hold.set()
        result = await running

    assert result.exit_code == 0, result.output
    assert len({request.json()["messages"][0]["content"] for request in worker.requests}) == 100


async def test_failed_requests_are_shown_by_status_and_code_and_make_the_exit_status_1() -> None:
    async with FakeWorker([refuse, refuse, answer_of(1)]) as worker:
        result = await run("--base-url", f"{worker.url}/v1", "--requests", "3")

    assert result.exit_code == 1
    assert "1 / 2" in result.stdout
    assert "429 rate_limit_exceeded: 2" in result.stdout
    assert "slow down" in result.stdout


async def test_the_json_file_holds_parameters_machine_versions_summary_and_every_request(
    tmp_path: Path,
) -> None:
    file = tmp_path / "results" / "burst.json"
    async with FakeWorker([refuse, answer_of(2)]) as worker:
        url = f"{worker.url}/v1"
        result = await run("--base-url", url, "--requests", "4", "--json", str(file), key="sk-canary")

    kept = json.loads(file.read_text(encoding="utf-8"))
    assert f"kept in {file}" in result.stdout
    assert kept["parameters"]["base_url"] == url
    assert (kept["parameters"]["requests"], kept["parameters"]["concurrency"]) == (4, 4)
    assert kept["machine"]["cores"] >= 1
    assert {"python", "openai", "httpx2", "vllm-gateway"} <= kept["versions"].keys()
    assert kept["summary"]["ok"] == 3
    assert [record["index"] for record in kept["records"]] == [0, 1, 2, 3]
    assert sum(record["failure"] is not None for record in kept["records"]) == 1
    assert "sk-canary" not in file.read_text(encoding="utf-8")


async def test_a_file_that_cannot_be_written_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with FakeWorker() as worker:
        url = f"{worker.url}/v1"
        result = await run("--base-url", url, "--json", str(tmp_path / "file" / "burst.json"))

    assert result.exit_code == 2
    assert "cannot write" in result.stderr
    assert worker.requests == worker.probes == []


async def test_an_older_result_stays_when_nothing_could_be_measured(tmp_path: Path) -> None:
    file = tmp_path / "burst.json"
    file.write_text("older", encoding="utf-8")

    result = await run("--base-url", "http://127.0.0.1:9/v1", "--json", str(file))

    assert result.exit_code == 2
    assert file.read_text(encoding="utf-8") == "older"


async def test_prompts_of_a_file_are_sent_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("first\nsecond\n", encoding="utf-8")
    async with FakeWorker() as worker:
        url = f"{worker.url}/v1"
        options = [
            "--endpoint",
            "completions",
            "--no-stream",
            "--max-tokens",
            "7",
            "--prompt-file",
            str(file),
        ]
        result = await run("--base-url", url, "--requests", "3", *options)

    assert result.exit_code == 0, result.output
    assert "completions, not streamed, smollm2" in result.stdout
    assert sorted(request.json()["prompt"] for request in worker.requests) == ["first", "first", "second"]
    assert {request.json()["max_tokens"] for request in worker.requests} == {7}


async def test_an_empty_prompt_file_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.touch()

    result = await run("--prompt-file", str(file))

    assert result.exit_code == 2
    assert "holds no prompt" in result.stderr


async def test_a_server_that_cannot_be_reached_is_named_with_what_to_check() -> None:
    async with FakeWorker() as worker:
        url = f"{worker.url}/v1"  # free again once the worker has ended

    result = await run("--base-url", url)

    assert result.exit_code == 2
    assert f"cannot reach {url}" in result.stderr
    assert "--base-url" in result.stderr


async def test_a_refused_key_stops_the_burst_before_it_begins() -> None:
    async def unauthorized(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "wrong key", "code": "invalid_api_key"}}, status=401)

    async with FakeWorker(probe=unauthorized) as worker:
        result = await run("--base-url", f"{worker.url}/v1")

    assert result.exit_code == 2
    assert "refuses the key" in result.stderr
    assert worker.requests == []


async def test_without_a_key_the_message_names_option_and_variable() -> None:
    result = await run(key=None)

    assert result.exit_code == 2
    assert "--api-key" in result.stderr
    assert "OPENAI_API_KEY" in result.stderr


async def test_key_and_address_may_come_from_the_sdks_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeWorker() as worker:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{worker.url}/v1")
        result = await run("--requests", "1", key=None)

    assert result.exit_code == 0, result.output
    assert worker.requests[0].headers["authorization"] == "Bearer sk-env"


async def test_a_server_without_a_model_list_is_asked_for_the_model_that_was_named() -> None:
    async def missing(request: Received, reply: Reply) -> None:
        await reply.json({"detail": "Not Found"}, status=404)

    async with FakeWorker(probe=missing) as worker:
        named = await run("--base-url", f"{worker.url}/v1", "--requests", "1", "--model", "mine")
        unnamed = await run("--base-url", f"{worker.url}/v1")

    assert named.exit_code == 0, named.output
    assert worker.requests[0].json()["model"] == "mine"
    assert unnamed.exit_code == 2
    assert "--model" in unnamed.stderr
    assert "404" in unnamed.stderr


async def test_the_first_question_is_asked_once_whatever_is_retried_later() -> None:
    async def busy(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"code": "busy"}}, status=503, headers={"retry-after-ms": "1"})

    async with FakeWorker(probe=busy) as worker:
        result = await run("--base-url", f"{worker.url}/v1", "--max-retries", "2")

    assert result.exit_code == 2
    assert "(503)" in result.stderr
    assert len(worker.probes) == 1


async def test_a_page_in_place_of_the_model_list_is_told() -> None:
    async def page(request: Received, reply: Reply) -> None:
        await reply.send(response_head(200, {"content-type": "text/html", "content-length": "6"}) + b"<html>")

    async with FakeWorker(probe=page) as worker:
        result = await run("--base-url", worker.url)

    assert result.exit_code == 2
    assert "lists no model (text/html)" in result.stderr


async def test_a_thousand_requests_at_once_are_all_answered() -> None:
    async with FakeWorker(answer_of(2)) as worker:
        result = await run("--base-url", f"{worker.url}/v1", "--requests", str(POOL_LIMIT))

    assert result.exit_code == 0, result.output
    assert "1000 / 0" in result.stdout


async def limited(limit: str, *arguments: str) -> tuple[int, str]:
    """The command under `ulimit -n`, in a process of its own."""
    command = shlex.join([sys.executable, "-m", "benchmarks.burst", "--api-key", "k", *arguments])
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        f"ulimit {limit} && exec {command}",
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_a_low_limit_of_open_files_is_raised_where_the_system_lets_us() -> None:
    async with FakeWorker() as worker:
        code, output = await limited("-Sn 80", "--base-url", f"{worker.url}/v1", "--requests", "100")

    assert code == 0, output


async def test_a_hard_limit_of_open_files_is_told_with_what_to_do() -> None:
    code, output = await limited("-n 80", "--requests", "100")

    assert code == 2
    assert "164 open files are needed and 80 allowed" in output
    assert "ulimit -n 164" in output


def test_a_limit_of_open_files_that_suffices_is_left_as_it_is() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    allow_open_files(1, "--concurrency")

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
