"""How does the gateway talk to a worker? An HTTP/1.1 client made for this one path.

    client = WorkerClient("http://10.0.0.7:8000", timeouts=Timeouts(5, 600, 60), idle_s=71, max_age_s=300)
    with await client.post("/v1/completions", [(b"content-type", b"application/json")], [body]) as answer:
        while chunk := await answer.read():
            ...

client.py sends and retries; pool.py keeps idle connections; connection.py is one socket with its clocks;
response.py reads HTTP; answer.py is what the caller holds.
"""

from gateway.upstream.answer import Answer
from gateway.upstream.client import WorkerClient
from gateway.upstream.connection import Timeouts

__all__ = ["Answer", "Timeouts", "WorkerClient"]
