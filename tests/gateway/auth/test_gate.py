"""Do only so many ask at once, and does nobody wait for longer than one answer may take?"""

import asyncio

import pytest

from gateway.auth.gate import MAX_LOOKUPS, Gate
from gateway.errors import StoreUnavailable
from tests.gateway.auth.directories import REMOTE, SECRET, FakeDirectory, Key, digest


def guesses(gate: Gate, count: int) -> list[asyncio.Task[object]]:
    return [asyncio.create_task(gate.find(digest(f"no-{i}"), is_known=False)) for i in range(count)]


async def test_the_directory_is_asked_by_the_hash_in_hex() -> None:
    assert await Gate(FakeDirectory({SECRET: REMOTE})).find(digest(SECRET), is_known=False) is REMOTE


async def test_guesses_wait_for_a_place_and_known_keys_do_not_wait_for_guesses() -> None:
    directory = FakeDirectory({SECRET: REMOTE})
    directory.hold()
    gate = Gate(directory)
    tasks = guesses(gate, MAX_LOOKUPS + 5)
    await directory.asked(MAX_LOOKUPS)
    known = asyncio.create_task(gate.find(digest(SECRET), is_known=True))
    await directory.asked()
    assert directory.busy == MAX_LOOKUPS + 1

    directory.let()

    assert await known is REMOTE
    assert await asyncio.gather(*tasks) == [None] * (MAX_LOOKUPS + 5)
    assert directory.calls == MAX_LOOKUPS + 6


async def test_those_who_wait_while_the_directory_goes_away_do_not_ask_it_one_after_another() -> None:
    directory = FakeDirectory()
    directory.hold()
    directory.is_away = True
    gate = Gate(directory)
    tasks = guesses(gate, 3 * MAX_LOOKUPS)
    await directory.asked(MAX_LOOKUPS)

    directory.let()

    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(error) for error in errors} == {StoreUnavailable}
    assert {error.retry_after_s for error in errors if isinstance(error, StoreUnavailable)} == {1}
    assert directory.calls == MAX_LOOKUPS


async def test_who_comes_once_it_is_back_is_answered() -> None:
    directory = FakeDirectory({SECRET: Key("acme-r", "acme")})
    directory.is_away = True
    gate = Gate(directory)
    with pytest.raises(StoreUnavailable):
        await gate.find(digest(SECRET), is_known=False)
    directory.is_away = False

    assert await gate.find(digest(SECRET), is_known=False) is not None
