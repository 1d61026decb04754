"""Is a prompt's chain that of what the worker caches: of one prompt, from where it begins, for one tenant?"""

import json
from typing import Any

import pytest

from gateway.model import Caller, Chain, Endpoint, Incoming
from tests.gateway.intake.samples import caller, chat, completion, intake

LONG = "In the beginning there was a prompt. " * 200  # 7 steps of a chain
SAME = Endpoint.CHAT, chat(messages=[{"role": "user", "content": LONG}])
COMPLETION = Endpoint.COMPLETIONS, completion(prompt=LONG)


def chain_of(
    endpoint: Endpoint, body: bytes | bytearray, of: Caller | None = None, chains: bool = True
) -> Chain | None:
    return intake(chains=chains).read(Incoming("r", endpoint, {}), body, of or caller()).chain


def hashes(endpoint: Endpoint, body: bytes | bytearray, of: Caller | None = None) -> list[int]:
    """One for each step, the first step's first."""
    found = chain_of(endpoint, body, of)
    assert found is not None
    return found.hashes[::-1]


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.mark.parametrize("asked", [SAME, COMPLETION])
def test_a_chain_is_made_where_somebody_looks_for_it(asked: tuple[Endpoint, bytes]) -> None:
    assert chain_of(*asked) is not None
    assert chain_of(*asked, chains=False) is None


def test_a_room_makes_no_chains_unless_told_to() -> None:
    assert intake().read(Incoming("r", SAME[0], {}), SAME[1], caller()).chain is None


def test_a_short_prompt_has_no_chain() -> None:
    assert chain_of(Endpoint.CHAT, chat()) is None


def test_a_chain_has_the_tokens_of_its_prompt_and_the_bytes_from_there_on() -> None:
    endpoint, body = SAME
    job = intake(chains=True).read(Incoming("r", endpoint, {}), body, caller())
    assert job.chain is not None
    assert job.chain.prompt_tokens == job.prompt_tokens
    assert job.chain.prompt_bytes == len(body) - body.index(b'"messages"')


def test_a_conversation_goes_on_where_it_was() -> None:
    first = [turn("user", LONG)]
    more = [*first, turn("assistant", "Indeed. " * 300), turn("user", "Go on.")]
    before, after = (hashes(Endpoint.CHAT, chat(messages=turns)) for turns in (first, more))
    assert len(after) > len(before) == len(LONG) // 1024
    assert after[: len(before)] == before


@pytest.mark.parametrize(
    ("endpoint", "name", "prompt"),
    [
        (Endpoint.CHAT, "messages", [turn("user", LONG)]),
        (Endpoint.COMPLETIONS, "prompt", LONG),
        (Endpoint.COMPLETIONS, "prompt", [LONG]),
        (Endpoint.COMPLETIONS, "prompt", list(range(1000))),
    ],
)
def test_what_stands_before_the_prompt_is_no_part_of_it(endpoint: Endpoint, name: str, prompt: Any) -> None:
    bodies = [
        json.dumps({"model": "small"} | before | {name: prompt}).encode()
        for before in ({}, {"temperature": 0.25}, {"seed": 12345, "user": "someone"})
    ]
    one, *others = (hashes(endpoint, body) for body in bodies)
    assert others == [one, one]


def test_a_prompt_whose_name_is_written_otherwise_is_followed_from_the_bodys_beginning() -> None:
    body = SAME[1].replace(b'"messages"', b'"m\\u0065ssages"')
    found = chain_of(Endpoint.CHAT, body)
    assert found is not None
    assert found.prompt_bytes == len(body)


def test_another_prompt_has_another_chain() -> None:
    other = chat(messages=[turn("user", "X" + LONG)])
    assert not set(hashes(*SAME)) & set(hashes(Endpoint.CHAT, other))


def test_one_tenant_never_finds_the_prompt_of_another() -> None:
    assert not set(hashes(*SAME, caller())) & set(hashes(*SAME, caller(salt="6b" * 32)))
    assert hashes(*SAME, caller()) == hashes(*SAME, caller(id="other"))  # of one cache group


def test_one_model_never_finds_the_prompt_of_another() -> None:
    other = chat(model="plain", messages=[turn("user", LONG)])
    assert not set(hashes(*SAME)) & set(hashes(Endpoint.CHAT, other))


@pytest.mark.parametrize("prompt", [[LONG, "another"], [LONG, LONG], [[1] * 2000, [1] * 2000]])
def test_several_prompts_are_no_one_chain(prompt: Any) -> None:
    assert chain_of(Endpoint.COMPLETIONS, completion(prompt=prompt)) is None


@pytest.mark.parametrize("cut", [-1, 100])
def test_a_prompt_that_the_worker_cuts_has_none(cut: int) -> None:
    body = chat(messages=[turn("user", LONG)], truncate_prompt_tokens=cut)
    assert chain_of(Endpoint.CHAT, body) is None


def test_a_bytearray_is_followed_like_bytes_and_is_free_again_afterwards() -> None:
    body = bytearray(SAME[1])
    assert hashes(SAME[0], body) == hashes(*SAME)
    body.clear()  # raises BufferError while anybody has a view of it
