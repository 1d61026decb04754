"""Stands in for the `vllm` executable: a process with a child of its own, that serves /health.

FAKE_BEHAVIOUR says how it fares; FAKE_PIDS names a file to which each life appends `own-pid child-pid`.
"""

import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    """Answers /health, with 503 the first time where that is the behaviour; /die ends the process."""

    refusals = 1 if os.environ["FAKE_BEHAVIOUR"] == "warming" else 0

    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(9)
        refused = Health.refusals > 0
        Health.refusals -= 1
        if refused:
            print("still warming", flush=True)
        self.send_response(503 if refused else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def main() -> None:
    """Lives as FAKE_BEHAVIOUR says."""
    behaviour = os.environ["FAKE_BEHAVIOUR"]
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"])
    pids = Path(os.environ["FAKE_PIDS"])
    lives = len(pids.read_text().splitlines()) if pids.exists() else 0
    with pids.open("a") as file:
        file.write(f"{os.getpid()} {child.pid}\n")
    if behaviour == "crash" or (behaviour == "once" and lives == 1):
        sys.exit("ValueError: no such model")
    if behaviour == "mute":
        print("loading weights", flush=True)
        time.sleep(600)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    HTTPServer(("127.0.0.1", port), Health).serve_forever()


if __name__ == "__main__":
    main()
