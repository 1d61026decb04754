"""How many may ask the directory at once? A guesser must not fill the store's connections."""

import asyncio

from gateway.auth.directory import Directory, Found
from gateway.errors import StoreUnavailable

MAX_LOOKUPS = 64  # each needs a connection, of which a Redis takes 10,000 by default


class Gate:
    """The directory, behind places for known keys, and places of their own for what may be nobody's key."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._places = {is_known: asyncio.Semaphore(MAX_LOOKUPS) for is_known in (True, False)}
        self._failures = 0

    async def find(self, digest: bytes, *, is_known: bool) -> Found | None:
        """Raises StoreUnavailable, about as soon as the directory does."""
        failures = self._failures
        async with self._places[is_known]:
            if failures != self._failures:
                # Or the last in the line would wait for as many timeouts as there are before it.
                raise StoreUnavailable("The key cannot be checked at the moment. Try again.", retry_after_s=1)
            try:
                return await self._directory.find(digest.hex())
            except StoreUnavailable:
                self._failures += 1
                raise
