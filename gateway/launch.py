"""How does a gateway run? In one process, or in several that are replaced without anybody noticing."""

import gc
import logging
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from gateway.app import Gateway
from gateway.configuration import ConfigurationError
from gateway.forks import Seat, Shift
from gateway.processes import Parent
from gateway.reload import Watcher
from gateway.server import listen, running
from gateway.settings import Settings
from gateway.signals import until_told_to_stop
from gateway.usage import Records, RecordsUnwritable

log = logging.getLogger(__name__)

FIXED = ("host", "port", "admin_host", "admin_port", "processes")  # what the parent is made of


@dataclass(frozen=True)
class Launch:
    """Where a gateway serves, and where its settings are from.

    path, load: the configuration file, and how it is read again when it has changed.
    salt_secret: where the settings have none; one for all processes, and for their successors.
    """

    public: socket.socket
    admin: socket.socket
    path: Path
    load: Callable[[], Settings]
    salt_secret: bytes

    def shift(self, settings: Settings) -> Shift:
        """What each of several processes does. Raises RecordsUnwritable."""
        if settings.usage.records:
            Records(settings.usage.records).close()  # what no process could open is told before there are any
        return Shift(lambda seat: uvloop.run(self.serve(settings, seat)), settings.server.drain_s)

    def renewed(self, running: Settings) -> Shift | None:
        """The same by what the file says now. None, and a word in the log, where nothing may be replaced."""
        try:
            settings = self.load()
            fixed = [
                name for name in FIXED if getattr(settings.server, name) != getattr(running.server, name)
            ]
            if not fixed:
                return self.shift(settings)
            names = ", ".join(f"server.{name}" for name in fixed)
            reason = f"it changes {names}, for which the gateway has to be stopped and started"
        except ConfigurationError as error:
            reason = "; ".join(error.problems)
        except RecordsUnwritable as error:
            reason = str(error)
        log.error("no process is replaced by what %s says now: %s", self.path, reason)
        return None

    async def serve(self, settings: Settings, seat: Seat | None = None) -> None:
        """Serve in this process, until a signal."""
        salt_secret = b"" if settings.auth.cache_salt_secret else self.salt_secret
        gateway = Gateway(settings, seat=seat, salt_secret=salt_secret)
        ports = gateway.on(self.public, self.admin)
        async with (
            gateway,
            running(ports, settings.server, gateway.place, gateway.callers),
            Watcher(self.path, settings, self.load, gateway.adopt) as watcher,
        ):
            _tune_garbage_collection()
            log.info("serving on %s, metrics on %s", _shown(self.public), _shown(self.admin))
            await until_told_to_stop(
                gateway.ending.drain,
                settle=gateway.ending.settle,
                retire=gateway.ending.retire,
                on_hangup=watcher.look_now,
                lifeline=seat.lifeline if seat else None,
            )


def run(settings: Settings, path: Path, load: Callable[[], Settings]) -> int:
    """Serve by as many processes as configured until a signal; returns the exit status.

    path, load: as of a Launch. Raises PortTaken or RecordsUnwritable.
    """
    server = settings.server
    with ExitStack() as stack:
        public = stack.enter_context(listen("port", server.host, server.port))
        admin = stack.enter_context(listen("admin_port", server.admin_host, server.admin_port))
        launch = Launch(public, admin, path, load, secrets.token_bytes(32))
        if server.processes == 1:
            uvloop.run(launch.serve(settings))
            return 0
        return Parent(server.processes, launch.shift(settings), renew=lambda: launch.renewed(settings)).run()


def _tune_garbage_collection() -> None:
    """What is there by now stays, and a request makes no cycles: look less often, and not at that."""
    gc.freeze()  # with what little garbage there is: to find it would hold up who waits for the start
    gc.set_threshold(100_000, 20, 20)


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
