"""What do limits that are kept in Redis cost a request? `python -m benchmarks.limits`."""
