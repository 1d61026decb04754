"""What does a burst of `openai` SDK requests get from a server? `python -m benchmarks.burst --help`."""
