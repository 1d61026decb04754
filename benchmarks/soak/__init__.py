"""Does anything grow that should not, hour after hour? `python -m benchmarks.soak`."""
