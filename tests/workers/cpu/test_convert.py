"""Does the converter ask for dense bfloat16 weights? Fakes stand in for the other environment's libraries."""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Saved:
    """Something loaded by `from_pretrained`, which remembers how and says so where it is saved."""

    def __init__(self, kind: str, **how: Any) -> None:
        self._kind = kind
        self._how = how

    def save_pretrained(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        (directory / self._kind).write_text(repr(sorted(self._how.items())))


def loader(kind: str) -> SimpleNamespace:
    return SimpleNamespace(from_pretrained=lambda folder, **how: Saved(kind, folder=folder, **how))


def test_model_is_saved_dense_with_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, transformers = ModuleType("torch"), ModuleType("transformers")
    vars(torch).update(bfloat16="bfloat16")
    vars(transformers).update(
        GgufConfig=lambda dequantize: f"dequantize={dequantize}",
        AutoModelForCausalLM=loader("model"),
        AutoTokenizer=loader("tokenizer"),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.delitem(sys.modules, "workers.cpu.convert", raising=False)
    importlib.import_module("workers.cpu.convert").convert(Path("/weights/some.gguf"), tmp_path / "out")
    common = [("folder", "/weights"), ("gguf_file", "some.gguf")]
    dense = [("dtype", "bfloat16"), *common, ("quantization_config", "dequantize=True")]
    assert (tmp_path / "out" / "model").read_text() == repr(dense)
    assert (tmp_path / "out" / "tokenizer").read_text() == repr(common)
