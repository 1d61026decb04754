"""An OpenAI-compatible gateway in front of `vllm serve` workers."""

__version__ = "0.1.0"
