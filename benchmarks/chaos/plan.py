"""How long, how much, and against which promises?"""

from collections.abc import Mapping
from dataclasses import dataclass, field

REPLICAS = 2
PROCESSES = 2  # of each replica
WORKERS = 3
ADMIN = "admin"  # the name of the admin API's key among those of the tenants

Limits = Mapping[str, int]  # by their names in the gateway's file

OPEN, BY_REQUESTS, BY_TOKENS, BY_SLOTS = "open", "by-requests", "by-tokens", "by-slots"
TENANTS: Mapping[str, Limits] = {
    OPEN: {},
    BY_REQUESTS: {"requests_per_minute": 120},
    BY_TOKENS: {"tokens_per_minute": 6000},
    BY_SLOTS: {"max_concurrency": 6},
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters. Those of the gateway are in its file."""

    seconds: float = 600.0  # in which callers call
    seed: int = 1
    per_s: float = 25.0  # calls, of all tenants together
    burst: int = 40  # calls at once, now and then
    burst_every_s: float = 20.0
    interval_s: float = 0.03  # between two tokens of a worker
    quiet_s: float = 5.0  # at the end, in which nothing new goes wrong
    lease_ttl_s: float = 10.0
    drain_s: float = 5.0
    stop_s: float = 3.0  # after which nothing may be generated any more for a caller who has left
    freeze_s: tuple[float, float] = (0.2, 5.0)  # of Redis, and of a worker
    rules: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: {
            "server": {"client_stall_s": 10, "header_timeout_s": 5, "body_timeout_s": 5},
            "admission": {"max_wait_s": 8},
            "upstream": {"connect_timeout_s": 1, "first_byte_timeout_s": 6, "gap_timeout_s": 4},
            "fleet": {"probe_interval_s": 1, "probe_timeout_s": 1, "ejection_s": 3},
        }
    )

    @property
    def mischief_s(self) -> float:
        """From the beginning on, in which things go wrong."""
        return self.seconds - self.quiet_s


def fast(seed: int) -> Plan:
    """A smoke test: all faults within seconds."""
    return Plan(
        seconds=12.0,
        seed=seed,
        per_s=12.0,
        burst=20,
        burst_every_s=6.0,
        quiet_s=3.0,
        lease_ttl_s=4.0,
        drain_s=2.0,
        freeze_s=(0.2, 1.5),
    )
