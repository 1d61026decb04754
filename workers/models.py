"""What shape does a model have, as far as memory and sharding are concerned?"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveInt,
    ValidationError,
)

Quantization = Literal["none", "gptq", "awq"]

# Decoders whose layer is q, k, v, o and a gated MLP of three matrices: what the formulas below count.
DENSE_DECODERS = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


class UnknownShape(Exception):
    """The model's shape cannot be told; the message says what to give."""


class Shape(BaseModel):
    """The dimensions of a dense decoder, with the names of the `[workers.shape]` table."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    layers: PositiveInt = Field(description="number of decoder layers")
    hidden_size: PositiveInt = Field(description="width of the residual stream")
    heads: PositiveInt = Field(description="number of query heads")
    kv_heads: PositiveInt = Field(description="number of key and value heads")
    head_dim: PositiveInt = Field(description="width of one head")
    intermediate_size: PositiveInt = Field(description="inner width of the MLP")
    vocab_size: PositiveInt = Field(description="rows of the embedding table")
    max_position_embeddings: PositiveInt = Field(
        description="context length the model was trained for, tokens"
    )
    rope_theta: NonNegativeFloat = Field(default=10_000.0, description="base of the rotary embedding")
    rope_scaled: bool = Field(
        default=False, description="true where the checkpoint scales its rotary embedding"
    )
    tied_embeddings: bool = Field(default=False, description="true where input and output embeddings are one")
    attention_bias: bool = Field(default=False, description="true where q, k and v have a bias")
    quantization: Quantization = Field(default="none", description='"none", "gptq" or "awq"')
    bits: Literal[4, 8] = Field(default=4, description="bits of a quantized weight")
    group_size: PositiveInt = Field(default=128, description="weights that share one scale, if quantized")

    @property
    def linear_parameters(self) -> int:
        """Weights of all attention and MLP matrices: those that quantization shrinks."""
        attention = 2 * self.hidden_size * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def embedding_parameters(self) -> int:
        """Weights of the input embedding and of the output head."""
        return self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)

    @property
    def small_parameters(self) -> int:
        """Norms and biases, which every GPU keeps whole (counted so; they are a rounding error)."""
        bias = self.head_dim * (self.heads + 2 * self.kv_heads) if self.attention_bias else 0
        return self.layers * (2 * self.hidden_size + bias) + self.hidden_size

    @property
    def parameters(self) -> int:
        """All weights of the model."""
        return self.linear_parameters + self.embedding_parameters + self.small_parameters


def _qwen(layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, vocab: int, tied: bool) -> Shape:
    return Shape(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate_size=mlp,
        vocab_size=vocab,
        max_position_embeddings=32_768,
        rope_theta=1_000_000.0,
        tied_embeddings=tied,
        attention_bias=True,
    )


# From the config.json of each Qwen/Qwen2.5-*-Instruct. 72B is left out: its quantized checkpoints have a
# padded MLP, so one shape would not do for all three.
_QWEN_SIZES = {
    "0.5B": _qwen(24, 896, 14, 2, 4_864, 151_936, tied=True),
    "1.5B": _qwen(28, 1_536, 12, 2, 8_960, 151_936, tied=True),
    "3B": _qwen(36, 2_048, 16, 2, 11_008, 151_936, tied=True),
    "7B": _qwen(28, 3_584, 28, 4, 18_944, 152_064, tied=False),
    "14B": _qwen(48, 5_120, 40, 8, 13_824, 152_064, tied=False),
    "32B": _qwen(64, 5_120, 40, 8, 27_648, 152_064, tied=False),
}
_QWEN_SUFFIXES: dict[str, Quantization] = {"": "none", "-GPTQ-Int4": "gptq", "-AWQ": "awq"}

KNOWN_SHAPES = {
    f"Qwen/Qwen2.5-{size}-Instruct{suffix}": shape.model_copy(update={"quantization": quantization})
    for size, shape in _QWEN_SIZES.items()
    for suffix, quantization in _QWEN_SUFFIXES.items()
}


class _Config(BaseModel):
    """The parts of a transformers `config.json` that a shape is made from, old and new spelling."""

    architectures: list[str] = []
    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    intermediate_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    rope_theta: float | None = None
    rope: dict[str, Any] | None = Field(
        default=None, validation_alias=AliasChoices("rope_parameters", "rope_scaling")
    )
    tie_word_embeddings: bool = False
    attention_bias: bool | None = None
    model_type: str = ""
    quantization_config: dict[str, Any] | None = None

    def shape(self) -> Shape:
        rope = self.rope or {}
        quantized = self.quantization_config or {}
        bias = self.model_type == "qwen2" if self.attention_bias is None else self.attention_bias
        return Shape(
            layers=self.num_hidden_layers,
            hidden_size=self.hidden_size,
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads or self.num_attention_heads,
            head_dim=self.head_dim or self.hidden_size // self.num_attention_heads,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            max_position_embeddings=self.max_position_embeddings,
            rope_theta=rope.get("rope_theta") or self.rope_theta or 10_000.0,
            rope_scaled=rope.get("rope_type", rope.get("type", "default")) != "default",
            tied_embeddings=self.tie_word_embeddings,
            attention_bias=bias,
            quantization=quantized.get("quant_method", "none"),
            bits=quantized.get("bits", 4),
            group_size=quantized.get("group_size", 128),
        )


def is_path(model: str) -> bool:
    """Whether a model is named by its directory; anything else is a repository id (`owner/name`)."""
    return model.startswith(("/", "./", "../", "~"))


def shape_of(model: str) -> Shape:
    """The shape of a model directory (from its config.json) or of a well-known repository id.

    Raises UnknownShape where there is none to be had.
    """
    if is_path(model):
        return _read(Path(model) / "config.json")
    if model in KNOWN_SHAPES:
        return KNOWN_SHAPES[model]
    fields = ", ".join(name for name, field in Shape.model_fields.items() if field.is_required())
    raise UnknownShape(
        "neither a directory (write /…, ./… or ~/…) nor a model whose size is known here; "
        f"give its numbers from config.json in [workers.shape]: {fields}"
    )


def _read(file: Path) -> Shape:
    try:
        config = _Config.model_validate(json.loads(file.read_bytes()))
        if not set(config.architectures) & set(DENSE_DECODERS):
            raise UnknownShape(
                f"{file} names the architecture {config.architectures}, whose memory is not known here "
                f"(known: {', '.join(DENSE_DECODERS)}); give [workers.shape] with figures that fit it"
            )
        return config.shape()
    except OSError as error:
        raise UnknownShape(f"cannot read {file}: {error.strerror}; name a model directory") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UnknownShape(f"{file} does not describe a model this plan can size: {faults}") from error
    except ValueError as error:
        raise UnknownShape(f"{file} is not JSON: {error}") from error
