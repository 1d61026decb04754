"""Do limits hold, and free themselves, when Redis or a gateway fails? `python -m benchmarks.outage`."""
