"""Does the gateway run as nobody, with no rights, on files that it cannot write?"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from deploy.services import running
from tests.deploy.confinement import confined
from tests.deploy.files import ROOT, last
from tests.deploy.test_native import STOP_S, ComposedGateway, ready
from tests.fakes import FakeWorker
from tests.vllm_answers import MODEL, answer_of

TELL = """
import errno, json, os, sys
refused = []
for folder in sys.argv[1:]:
    try:
        open(os.path.join(folder, "written"), "w").close()
    except OSError as error:
        refused.append(errno.errorcode[error.errno])
with open("/proc/self/status") as file:
    status = dict(line.rstrip("\\n").split(":\\t", 1) for line in file)
print(json.dumps({"user": os.getuid(), "refused": refused, "status": status}))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter, as pytest's own may not be."""
    with tempfile.TemporaryDirectory(prefix="confined-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_what_is_confined_has_no_rights_and_nothing_to_write_to(place: Path) -> None:
    folders = ["/", "/tmp", str(place), str(ROOT), str(ROOT / "gateway")]
    argv = confined([sys.executable, "-c", TELL, *folders, "/dev/shm"], place)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)

    assert told["refused"] == ["EROFS"] * len(folders)
    assert {told["status"][name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert told["status"]["NoNewPrivs"] == "1"
    if os.geteuid() == 0:
        assert str(told["user"]) == last("USER").value.split(":")[0]


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_the_gateway_serves_so_and_ends_in_order(processes: str, place: Path, redis_url: str) -> None:
    async with FakeWorker(answer_of(3)) as worker:
        gateway = ComposedGateway(place, worker.url, redis_url)
        environment = gateway.environment() | {"GATEWAY_SERVER_PROCESSES": processes}
        argv = confined(gateway.command(), place)
        with running("gateway", argv, gateway.log, STOP_S, environment) as service:
            await ready(service, f"{gateway.url}/ready")
            client = openai.AsyncOpenAI(api_key=gateway.key(), base_url=f"{gateway.url}/v1", max_retries=0)
            async with client:
                messages: list[object] = [{"role": "user", "content": "hello"}]
                answer = await client.chat.completions.create(model=MODEL, messages=messages)  # type: ignore[arg-type]
            assert answer.choices[0].finish_reason is not None
            assert gateway.health_check(gateway.port) == 0
    assert service.process.returncode == 0, service.tail()
    assert "Traceback" not in gateway.log.read_text(encoding="utf-8")
