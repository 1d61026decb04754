"""Does docker-compose.yml say what an operator relies on?"""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway import __version__
from tests.deploy.files import ROOT, Service, dockerfile, services
from workers.plan import WorkerPlan, plan_fleet

ALWAYS = {"gateway", "redis", "prometheus"}
PINNED = re.compile(r"^[\w./-]+:v?\d+\.\d+\.\d+(-[\w.]+)?$")

# What a container is given differently: the cards by the engine, the model by a download.
OF_THE_HOST = {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE"}

# Enough of SmolLM2-135M's own for `workers` to plan it.
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_theta": 100000.0},
}


@pytest.fixture
def all_services() -> dict[str, Service]:
    return services()


@pytest.mark.parametrize("profile", ["gpu", "cpu"])
def test_each_profile_is_valid_and_brings_its_worker(profile: str) -> None:
    found = services(profile)

    assert {name for name, service in found.items() if "profiles" not in service} == ALWAYS
    assert found[f"worker-{profile}"]["profiles"] == [profile]


def test_only_the_gateways_public_port_is_published_and_on_loopback(all_services: dict[str, Service]) -> None:
    published = {name: service["ports"] for name, service in all_services.items() if "ports" in service}

    assert published == {"gateway": ["127.0.0.1:8080:8080/tcp"]}
    assert not [name for name, service in all_services.items() if "network_mode" in service]


def test_what_asks_for_no_key_is_on_the_inner_network_alone(all_services: dict[str, Service]) -> None:
    assert all_services["redis"]["networks"].keys() == {"inside"}
    assert all_services["prometheus"]["networks"].keys() == {"inside"}


def test_every_image_is_pinned_to_a_version(all_services: dict[str, Service]) -> None:
    assert [s["image"] for s in all_services.values() if not PINNED.match(s["image"])] == []
    assert all_services["worker-gpu"]["image"] == "vllm/vllm-openai:v0.32.0"
    assert all_services["worker-cpu"]["image"] == "vllm/vllm-openai-cpu:v0.32.0"
    assert all_services["gateway"]["image"] == f"vllm-gateway:{__version__}"


def test_every_service_has_a_health_check(all_services: dict[str, Service]) -> None:
    without = {name for name, service in all_services.items() if "healthcheck" not in service}

    assert without == {"gateway"}  # it is in its image
    assert [i for i in dockerfile() if i.name == "HEALTHCHECK"]


def test_no_service_can_gain_rights_or_write_outside_its_volumes(all_services: dict[str, Service]) -> None:
    for name, service in all_services.items():
        hardened = {key: service.get(key) for key in ("init", "read_only", "cap_drop", "security_opt")}
        assert hardened == {
            "init": True,
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
        }, name
        assert not {"privileged", "cap_add", "pid", "ipc"} & service.keys(), name


def test_no_service_runs_as_root(all_services: dict[str, Service]) -> None:
    users = {name: service["user"] for name, service in all_services.items() if name != "gateway"}

    assert all(re.fullmatch(r"[1-9]\d*:\d+", user) for user in users.values()), users


def test_log_files_are_bounded(all_services: dict[str, Service]) -> None:
    for service in all_services.values():
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}


def test_a_gpu_worker_gets_its_four_cards_shared_memory_and_time(all_services: dict[str, Service]) -> None:
    worker = all_services["worker-gpu"]

    [device] = worker["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 4, ["gpu"])
    assert worker["shm_size"] in ("16gb", 16 * 2**30)
    assert worker["healthcheck"]["start_period"] in ("600s", "10m")
    assert worker["stop_grace_period"] in ("90s", "1m30s")


def test_a_container_is_given_longer_to_stop_than_what_runs_in_it_takes(
    all_services: dict[str, Service],
) -> None:
    grace_s = {"45s": 45, "90s": 90, "1m30s": 90}
    config = (ROOT / "deploy/gateway.compose.toml").read_text(encoding="utf-8")

    assert "drain_s" not in config  # so it is the 30 s of the settings
    assert grace_s[all_services["gateway"]["stop_grace_period"]] > 30
    for name in ("worker-gpu", "worker-cpu"):
        command = all_services[name]["command"]
        shutdown_s = int(command[command.index("--shutdown-timeout") + 1])
        assert grace_s[all_services[name]["stop_grace_period"]] > shutdown_s + 15


@pytest.fixture
def planned(tmp_path: Path) -> dict[str, WorkerPlan]:
    """What `workers plan` makes of the fleet files that the containers stand for."""
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2), encoding="utf-8")
    installed = SimpleNamespace(python=Path("python"), model=tmp_path)
    [gpu] = plan_fleet(ROOT / "deploy/fleet.tp4.toml")
    cpu, _ = plan_fleet(ROOT / "deploy/fleet.cpu.toml", lambda: installed)
    return {"worker-gpu": gpu, "worker-cpu": cpu}


@pytest.mark.parametrize("name", ["worker-gpu", "worker-cpu"])
def test_a_worker_is_started_as_workers_plan_would(
    name: str, all_services: dict[str, Service], planned: dict[str, WorkerPlan]
) -> None:
    """Apart from the address, and where the model comes from."""
    worker, service = planned[name], all_services[name]
    argv = list(worker.command.argv)
    flags = argv[argv.index("--served-model-name") :]
    for flag, value in (("--host", "0.0.0.0"), ("--port", "8000")):
        flags[flags.index(flag) + 1] = value

    assert service["command"][1:] == flags
    planned_env = {k: v for k, v in worker.command.env.items() if k not in OF_THE_HOST}
    assert {k: v for k, v in service["environment"].items() if k != "HOME"} == planned_env


def test_the_gpu_worker_serves_the_model_of_its_fleet_file(
    all_services: dict[str, Service], planned: dict[str, WorkerPlan]
) -> None:
    assert all_services["worker-gpu"]["command"][0] == planned["worker-gpu"].worker.model


def test_the_files_a_container_mounts_exist(all_services: dict[str, Service]) -> None:
    mounted = [
        v.split(":")[0] for s in all_services.values() for v in s.get("volumes", []) if v.startswith("/")
    ]

    assert [Path(path).relative_to(ROOT).as_posix() for path in sorted(mounted)] == [
        "deploy/gateway.compose.toml",
        "deploy/prometheus.yml",
    ]
    assert all(Path(path).is_file() for path in mounted)
