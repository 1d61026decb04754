"""Do the demo's fleets suit the machine, and do those who read them accept them and its gateway file?"""

import hashlib
from pathlib import Path

import pytest

from deploy import demo, fleets
from gateway import configuration
from workers.cpu import CpuEnvironment
from workers.plan import plan_fleet

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}


@pytest.fixture
def environment(tmp_path: Path) -> CpuEnvironment:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(str(SHAPE).replace("'", '"').replace("True", "true"))
    return CpuEnvironment(python=tmp_path / "bin" / "python", model=model)


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_cpu_fleet_is_moved_to_other_ports_and_told_where_its_vllm_lies(
    environment: CpuEnvironment, tmp_path: Path
) -> None:
    fleet = fleets.cpu_fleet(range(9001, 9003), environment)
    file = tmp_path / "fleet.toml"
    file.write_text(fleet.text)
    workers = [plan.worker for plan in plan_fleet(file)]
    assert [(worker.id, worker.port) for worker in workers] == [("w0", 9001), ("w1", 9002)]
    assert {worker.served_name for worker in workers} == {fleet.model}
    assert {worker.max_model_len for worker in workers} == {fleet.max_model_len}
    assert {worker.max_num_seqs for worker in workers} == {fleet.max_concurrency}
    for plan in plan_fleet(file):
        assert plan.command.argv[0] == str(environment.python)
        assert str(environment.model) in plan.command.argv


def test_gpu_fleet_has_one_worker_a_card_with_the_card_s_memory(tmp_path: Path) -> None:
    fleet = fleets.gpu_fleet([24_564, 81_559], range(9001, 9003), Path("/venv/bin/vllm"))
    file = tmp_path / "fleet.toml"
    file.write_text(fleet.text)
    plans = plan_fleet(file)
    assert [plan.command.argv[0] for plan in plans] == ["/venv/bin/vllm"] * 2
    assert [plan.command.env["CUDA_VISIBLE_DEVICES"] for plan in plans] == ["0", "1"]
    assert [plan.worker.port for plan in plans] == list(fleet.ports)
    assert "gpu_memory_gib = 24.0\n" in fleet.text
    assert "gpu_memory_gib = 79.6\n" in fleet.text
    assert {plan.worker.served_name for plan in plans} == {fleet.model}
    assert {plan.worker.max_model_len for plan in plans} == {fleet.max_model_len}
    assert {plan.worker.max_num_seqs for plan in plans} == {fleet.max_concurrency}


def test_cards_are_counted_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, 'echo "24564"; echo "24564"')
    assert fleets.gpu_memories_mib() == [24_564, 24_564]


def test_machine_without_driver_has_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fleets.gpu_memories_mib() == []


def test_failing_driver_counts_as_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, 'echo "no devices were found"; exit 6')
    assert fleets.gpu_memories_mib() == []


@pytest.mark.parametrize(("free_kib", "warned"), [(6_000_000, True), (16_000_000, False)])
def test_low_memory_is_warned_of(free_kib: int, warned: bool, tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 32000000 kB\nMemAvailable:    {free_kib} kB\n")
    warning = fleets.memory_warning(meminfo)
    assert (warning is not None) == warned
    assert warning is None or warning.startswith("6.1 GB of memory are free")


def test_gateway_accepts_its_file_and_knows_the_key_by_its_digest(
    environment: CpuEnvironment, tmp_path: Path
) -> None:
    fleet = fleets.cpu_fleet(range(9001, 9003), environment)
    text = demo.gateway_configuration(fleet, 9000, "sk-demo-secret")
    assert "sk-demo-secret" not in text
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    settings = configuration.load(file, {})
    assert (settings.server.port, settings.server.admin_port) == (9000, 9001)
    assert [worker.url for worker in settings.workers] == ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
    assert settings.keys[0].sha256 == hashlib.sha256(b"sk-demo-secret").hexdigest()
