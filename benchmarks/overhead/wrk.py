"""Who calls as fast as answers come? wrk, which costs a fraction of what any gateway does."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead import requests
from benchmarks.overhead.invalid import Invalid

TIMEOUT_S = 10  # of a request
END_LIMIT_S = 60.0  # beyond the load itself
SCRIPT = """\
wrk.method = "POST"
wrk.body = {body}
{headers}
function done(summary, latency)
  local failed = summary.errors
  print(string.format(
    '{{"requests": %d, "micros": %d, "p50_us": %d, "p99_us": %d, "failed": ' ..
    '{{"connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}}}}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    failed.connect, failed.read, failed.write, failed.timeout, failed.status))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What has been answered."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


def saturate(url: str, key: str, body: bytes, connections: int, seconds: int, folder: Path) -> Load:
    """Each connection asks again as soon as it has its answer. Raises Invalid.

    folder: for the script.
    """
    file = folder / "load.lua"
    file.write_text(script(key, body), encoding="utf-8")
    command = [
        *("setpriv", "--pdeathsig", "TERM", "--"),
        *("wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"),
        *("--timeout", f"{TIMEOUT_S}s", "--script", str(file), url + requests.PATH),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + END_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Invalid("wrk did not end") from error
    return parsed(done.stdout, done.stderr)


def script(key: str, body: bytes) -> str:
    """What wrk is to do, in Lua."""
    lines = (
        f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}"
        for name, value in requests.headers(key).items()
    )
    return SCRIPT.format(body=f"[==[{body.decode()}]==]", headers="\n".join(lines))


def parsed(output: str, errors: str = "") -> Load:
    """What wrk printed. Raises Invalid where requests failed, or none was answered."""
    line = next((line for line in output.splitlines() if line.startswith("{")), None)
    if line is None:
        raise Invalid(f"wrk told no figures: {(errors or output).strip()[-300:]}")
    told = json.loads(line)
    if failed := [f"{count} {kind}" for kind, count in told["failed"].items() if count]:
        raise Invalid(f"of {told['requests']} requests failed: {', '.join(failed)}")
    if not told["requests"]:
        raise Invalid("no request was answered")
    return Load(told["requests"], told["micros"] / 1e6, told["p50_us"] / 1e3, told["p99_us"] / 1e3)
