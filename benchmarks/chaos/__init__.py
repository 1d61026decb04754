"""Does the gateway keep its promises while all around it fails? `python -m benchmarks.chaos`."""
