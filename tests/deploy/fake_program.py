"""What stands in for the programs that the demo starts? Run as `fake_program.py NAME arguments…`.

`workers` listens on every port of its fleet file, `gateway` on the two of its configuration. Any GET is
answered with 200, and a POST with a streamed chat that says "Paris" if it carries the configured key. On
SIGTERM a line goes to the journal that FAKE_JOURNAL names. FAKE_FAILS names a program that fails: `workers`
at once, `gateway` at every question.
"""

import hashlib
import os
import signal
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHUNK = 'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}\n\n'
DELTA = '{"index":0,"delta":{"content":"Paris"},"finish_reason":null}'


def main(name: str, *arguments: str) -> None:
    """Serve until SIGTERM."""
    file = Path(arguments[arguments.index("--fleet" if name == "workers" else "--config") + 1])
    settings = tomllib.loads(file.read_text())
    fails = os.environ.get("FAKE_FAILS") == name
    if fails and name == "workers":
        sys.exit("no such model")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    handler = type("Handler", (Answering,), {"keys": [] if fails else settings.get("keys", [])})
    for port in ports(settings):
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    journal(f"{name} started")
    stop.wait()
    journal(f"{name} stopped")


def ports(settings: dict[str, Any]) -> list[int]:
    if "server" in settings:
        return [settings["server"]["port"], settings["server"]["admin_port"]]
    return [worker["port"] for worker in settings["workers"]]


def journal(line: str) -> None:
    with Path(os.environ["FAKE_JOURNAL"]).open("a") as file:
        print(line, file=file)


class Answering(BaseHTTPRequestHandler):
    """Answers one request a connection."""

    keys: list[dict[str, str]]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        key = self.headers["authorization"].removeprefix("Bearer ")
        known = hashlib.sha256(key.encode()).hexdigest() in [key["sha256"] for key in self.keys]
        self.send_response(200 if known else 401)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if known:
            self.wfile.write((CHUNK % DELTA + CHUNK % "" + "data: [DONE]\n\n").encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
