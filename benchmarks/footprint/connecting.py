"""How are thousands of connections opened from one machine? A few at a time, from several addresses."""

import asyncio
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

AT_ONCE = 256  # that connect: far below what listeners let wait, so that none has to try again a second later
PER_ADDRESS = 10_000  # connections: below the number of ports that a Linux system gives to one address
# Of <linux/in.h>, which Python 3.11 does not name: ports are chosen as if no address had been.
IP_BIND_ADDRESS_NO_PORT = 24


async def connect_all(protocols: Sequence[asyncio.Protocol], url: str) -> None:
    """Give each a connection of its own. Raises OSError once no other can still come about."""
    places = asyncio.Semaphore(AT_ONCE)

    async def connect(number: int, protocol: asyncio.Protocol) -> None:
        async with places:
            await _connect(protocol, url, number)

    connecting = (connect(number, protocol) for number, protocol in enumerate(protocols))
    for failure in await asyncio.gather(*connecting, return_exceptions=True):
        if failure is not None:
            raise failure


async def _connect(protocol: asyncio.Protocol, url: str, number: int) -> None:
    loop = asyncio.get_running_loop()
    opened = socket.socket()
    try:
        opened.setblocking(False)
        if nth := number // PER_ADDRESS:
            opened.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            opened.bind((f"127.0.0.{1 + nth}", 0))
        await loop.sock_connect(opened, address(url))
        await loop.create_connection(lambda: protocol, sock=opened)
    except BaseException:
        opened.close()
        raise


def address(url: str) -> tuple[str, int]:
    """Host and port."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80
