"""Shapes of models, from the table and from config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from workers.models import KNOWN_SHAPES, UnknownShape, shape_of

SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
}


def model_directory(folder: Path, config: object) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        # As published on the model cards, to the last weight where the checkpoint's index gives it.
        ("0.5B", 494_032_768),
        ("1.5B", 1_543_714_304),
        ("3B", 3_085_938_688),
        ("7B", 7_615_616_512),
        ("14B", 14_770_033_664),
        ("32B", 32_763_876_352),
    ],
)
def test_the_known_shapes_have_the_published_number_of_weights(size: str, parameters: int) -> None:
    assert KNOWN_SHAPES[f"Qwen/Qwen2.5-{size}-Instruct"].parameters == parameters


def test_quantized_checkpoints_are_known_by_their_names() -> None:
    assert shape_of("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4").quantization == "gptq"
    assert shape_of("Qwen/Qwen2.5-7B-Instruct-AWQ").quantization == "awq"


def test_a_directory_is_read_from_its_config(tmp_path: Path) -> None:
    shape = shape_of(model_directory(tmp_path, SMOLLM2))
    assert shape.parameters == 134_515_008
    assert (shape.head_dim, shape.rope_theta, shape.quantization) == (64, 100_000, "none")


def test_the_new_spelling_of_rotary_parameters_is_understood(tmp_path: Path) -> None:
    plain = {"rope_theta": 1e6, "rope_type": "default"}
    shape = shape_of(model_directory(tmp_path, SMOLLM2 | {"rope_theta": None, "rope_parameters": plain}))
    assert (shape.rope_theta, shape.rope_scaled) == (1e6, False)


@pytest.mark.parametrize("scaling", [{"type": "linear"}, {"rope_type": "llama3"}])
def test_a_scaled_checkpoint_is_recognised(tmp_path: Path, scaling: dict[str, str]) -> None:
    assert shape_of(model_directory(tmp_path, SMOLLM2 | {"rope_scaling": scaling})).rope_scaled


def test_a_head_width_that_the_config_names_is_taken(tmp_path: Path) -> None:
    assert shape_of(model_directory(tmp_path, SMOLLM2 | {"head_dim": 128})).head_dim == 128


def test_qwen2_has_biases_though_its_config_does_not_say_so(tmp_path: Path) -> None:
    qwen = SMOLLM2 | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    assert shape_of(model_directory(tmp_path, qwen)).attention_bias


def test_every_head_has_its_own_keys_where_the_config_names_no_groups(tmp_path: Path) -> None:
    config = {name: value for name, value in SMOLLM2.items() if name != "num_key_value_heads"}
    assert shape_of(model_directory(tmp_path, config)).kv_heads == 9


def test_a_quantized_directory_tells_its_method_and_group(tmp_path: Path) -> None:
    quantized = {"quant_method": "gptq", "bits": 8, "group_size": 64}
    shape = shape_of(model_directory(tmp_path, SMOLLM2 | {"quantization_config": quantized}))
    assert (shape.quantization, shape.bits, shape.group_size) == ("gptq", 8, 64)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "names the architecture ['MixtralForCausalLM']"),
        ({"num_hidden_layers": None}, "num_hidden_layers: Input should be a valid integer"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization: Input should be 'none', 'gptq' or"),
    ],
)
def test_a_config_that_cannot_be_sized_is_refused_by_name(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    with pytest.raises(UnknownShape) as unknown:
        shape_of(model_directory(tmp_path, SMOLLM2 | config))
    assert message in str(unknown.value)


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownShape, match=r"cannot read .*config.json: No such file"):
        shape_of(str(tmp_path))


def test_a_config_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnknownShape, match="is not JSON"):
        shape_of(str(tmp_path))


def test_a_config_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(UnknownShape, match="is not JSON"):
        shape_of(str(tmp_path))


def test_an_unknown_repository_names_the_fields_to_give() -> None:
    with pytest.raises(UnknownShape, match=r"\[workers.shape\]: layers, hidden_size, heads, kv_heads"):
        shape_of("acme/secret-7b")
