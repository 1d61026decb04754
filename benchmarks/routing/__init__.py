"""Who waits, and for how long, under each policy and each router? `python -m benchmarks.routing --help`."""
