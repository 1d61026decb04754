"""Start and watch `vllm serve` workers."""
