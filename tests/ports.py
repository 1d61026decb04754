"""Where can programs of a test listen that must be told their ports beforehand?"""

import os

from deploy.services import port_is_free

# Below those that the kernel hands out: vLLM takes many of them as it starts, and might take ours.
FIRST, LAST = 20_000, 32_000


def free_ports(count: int) -> range:
    """Consecutive ports that nobody listens on; other processes that run tests search elsewhere first."""
    for first in range(FIRST + os.getpid() % 1000 * 10, LAST, count):
        ports = range(first, first + count)
        if all(map(port_is_free, ports)):
            return ports
    raise LookupError(f"no {count} free ports between {FIRST} and {LAST}")
