"""What does one gateway process cost, and how steady are its streams? `python -m benchmarks.footprint`."""
