"""What does a gateway cost a request, and a streamed chunk? `python -m benchmarks.overhead`."""
