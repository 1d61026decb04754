"""Does Prometheus take its configuration, and does that scrape everything there is?"""

import subprocess
from pathlib import Path

import yaml

from tests.deploy.files import ROOT, services, tool

FILE = ROOT / "deploy/prometheus.yml"


def test_promtool_finds_no_fault() -> None:
    check: list[str | Path] = [tool("promtool", "prometheus"), "check", "config", FILE]
    done = subprocess.run(check, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_it_scrapes_the_gateways_admin_port_and_every_worker() -> None:
    jobs = {
        job["job_name"]: job for job in yaml.safe_load(FILE.read_text(encoding="utf-8"))["scrape_configs"]
    }
    workers = {name for name in services() if name.startswith("worker-")}

    assert jobs["gateway"]["static_configs"] == [{"targets": ["gateway:8081"]}]
    [lookup] = jobs["workers"]["dns_sd_configs"]
    assert set(lookup["names"]) == workers
    assert (lookup["type"], lookup["port"]) == ("A", 8000)
