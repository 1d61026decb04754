"""What if the network to Redis is slow, stalls or breaks? A fault proxy that knows commands from answers."""

from benchmarks.faults import FaultProxy


class Relay(FaultProxy):
    """`async with Relay(port) as relay` listens on a port of its own; the Redis behind it has the other."""

    @property
    def url(self) -> str:
        """Of the Redis behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def latency_ms(self) -> float:
        """What a round trip takes longer, half of it each way; it holds for what comes from then on."""
        return (self.up.latency_s + self.down.latency_s) * 1000

    @latency_ms.setter
    def latency_ms(self, value: float) -> None:
        self.up.latency_s = self.down.latency_s = value / 2000

    def stall_answers(self) -> None:
        """Forward commands, so that they take effect, but no answer."""
        self.down.stall()

    async def cut(self) -> None:
        """Reset all connections on both sides, and return when they are gone. What they held is lost."""
        await self.reset()
