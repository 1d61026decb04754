"""What does a gateway hold right now? Its processes memory, files and sockets, Redis keys and memory."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import redis

# As /proc/net/tcp has them; there are others, none of which lasts.
STATES = {"01": "established", "06": "time wait", "08": "close wait", "0A": "listening"}
SOCKET = re.compile(r"socket:\[(\d+)\]")
MB = 1e6


def processes(parent: int) -> list[int]:
    """A gateway's: the parent, and those that serve. Raises LookupError if one has ended."""
    try:
        listed = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8")
    except OSError as error:
        raise LookupError("the gateway has ended") from error
    return [parent, *map(int, listed.split())]


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory; and the same with shared pages counted by the part of each that shares them."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB$", text, re.MULTILINE))
    return int(found["Rss"]) * 1024 / MB, int(found["Pss"]) * 1024 / MB


def files(pid: int) -> list[str]:
    """What its open file descriptors are of."""
    folder = Path(f"/proc/{pid}/fd")
    found = []
    for number in os.listdir(folder):
        try:
            found.append(os.readlink(folder / number))
        except FileNotFoundError:  # closed since
            continue
    return found


def states() -> Mapping[str, str]:
    """Of all TCP sockets of the machine, by their numbers."""
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]
    ]
    return {fields[9]: STATES.get(fields[3], fields[3]) for fields in lines}


def sockets(opened: Sequence[str], by_number: Mapping[str, str]) -> Counter[str]:
    """How many of a process' files are TCP sockets in each state; others are no TCP, or gone since."""
    numbers = [found[1] for name in opened if (found := SOCKET.fullmatch(name))]
    return Counter(by_number[number] for number in numbers if number in by_number)


def look(parent: int, redis_port: int) -> dict[str, float]:
    """Everything, by what it is. Raises LookupError if the gateway has ended, redis.RedisError."""
    held: dict[str, float] = {}
    total: Counter[str] = Counter()
    by_number = states()
    for number, pid in enumerate(processes(parent)):
        name = f"process {number}" if number else "parent"
        try:
            rss, pss = memory_mb(pid)
            opened = files(pid)
        except (OSError, KeyError) as error:
            raise LookupError(f"a process of the gateway has ended: {name}") from error
        held |= {f"RSS of {name}, MB": rss, f"PSS of {name}, MB": pss, f"files of {name}": len(opened)}
        total += sockets(opened, by_number)
    held |= {f"sockets, {state}": total[state] for state in ("established", "close wait")}
    held["sockets, other"] = total.total() - total["established"] - total["close wait"] - total["listening"]
    return held | of_redis(redis_port)


def of_redis(port: int) -> dict[str, float]:
    """Raises redis.RedisError."""
    with redis.Redis(port=port, socket_timeout=5) as client:
        return {
            "keys in Redis": float(client.dbsize()),
            "memory of Redis, MB": int(client.info("memory")["used_memory"]) / MB,
        }
