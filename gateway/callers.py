"""How do callers' connections end before their process does? After an answer that says so, or idle."""

import asyncio
from collections.abc import Collection
from typing import Protocol

LAST_WORDS_S = 2  # for what is buffered at the very end
LOOK_S = 0.1  # between two looks at who is idle


class Connection(Protocol):
    """One of a caller's."""

    def close_idle(self, since: float) -> None:
        """Close it, if all was answered by that moment of the loop's time and nothing was asked since."""
        ...


class Server(Protocol):
    """One port of this process."""

    @property
    def connections(self) -> Collection[Connection]: ...

    def part(self) -> None:
        """From now on each connection ends with the next answer that begins on it, which says so."""
        ...

    def leave(self) -> None:
        """Accept no more: others listen on the same socket."""
        ...


class Callers:
    """All who are connected to this process."""

    def __init__(self) -> None:
        self.servers: list[Server] = []  # those that run

    def __len__(self) -> int:
        return sum(len(server.connections) for server in self.servers)

    def part(self) -> None:
        """Have each of them connect anew for what it asks after the next answer."""
        for server in self.servers:
            server.part()

    def leave(self) -> None:
        """Take on no more; siblings do."""
        for server in self.servers:
            server.leave()

    async def go(self, idle_s: float) -> None:
        """Wait until all have gone. Whoever is connected and has asked nothing for so long is sent away.

        Who has not asked anything yet is about to.
        """
        loop = asyncio.get_running_loop()
        while len(self):
            since = loop.time() - idle_s
            for server in self.servers:
                for connection in tuple(server.connections):
                    connection.close_idle(since)
            await asyncio.sleep(LOOK_S)
