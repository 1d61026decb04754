"""How do quantized GGUF weights become a directory that vLLM serves? Run by the CPU environment's Python.

usage: convert.py WEIGHTS.gguf DIRECTORY
"""

import sys
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]
import transformers  # type: ignore[import-not-found, unused-ignore]


def convert(weights: Path, directory: Path) -> None:
    """Write the model as dense bfloat16 safetensors, with the tokenizer that the GGUF file carries."""
    folder, name = str(weights.parent), weights.name
    # Without dequantize, the written configuration would still announce GGUF blocks, and vLLM refuse it.
    dense = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=dense
    )
    model.save_pretrained(directory)
    transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(directory)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
