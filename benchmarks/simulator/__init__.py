"""What would a vLLM worker on a GPU do? Its engine in virtual time: `python -m benchmarks.simulator`."""
