"""How evenly do long streams lie on several processes? `python -m benchmarks.balance`."""
