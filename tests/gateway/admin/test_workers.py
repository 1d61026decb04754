"""Are workers told as they are, and do they drain and resume?"""

import pytest

from tests.gateway.admin.desk import Desk
from tests.gateway.test_model import job

W1 = {
    "object": "worker",
    "id": "w1",
    "model": "large",
    "up": False,
    "draining": False,
    "in_flight": 0,
    "limit": 8,
    "waiting_prefill_tokens": 0,
    "failures": 0,
}


async def test_workers_are_listed_with_what_they_hold() -> None:
    desk = Desk()
    desk.fleet.occupy("w0", job(prompt_tokens=10)).first_token()
    desk.fleet.occupy("w0", job(prompt_tokens=7))
    desk.fleet.members["w0"].failures = 2
    w0 = {"id": "w0", "model": "small", "up": True, "in_flight": 2, "limit": 4, "failures": 2}
    seen = await desk.ask("GET", "/admin/workers")
    assert seen.json() == {"object": "list", "data": [W1 | w0 | {"waiting_prefill_tokens": 7}, W1]}


async def test_a_worker_drains_until_it_is_resumed() -> None:
    desk = Desk()
    for _ in range(2):  # once more is no mistake
        seen = await desk.ask("POST", "/admin/workers/w1/drain")
        assert (seen.status, seen.json()) == (200, W1 | {"draining": True})
    assert [of["draining"] for of in (await desk.ask("GET", "/admin/workers")).json()["data"]] == [
        False,
        True,
    ]
    assert desk.fleet.members["w1"].draining
    for _ in range(2):
        seen = await desk.ask("POST", "/admin/workers/w1/resume")
        assert (seen.status, seen.json()) == (200, W1)
    assert not desk.fleet.members["w1"].draining


@pytest.mark.parametrize("act", ["drain", "resume"])
async def test_an_unknown_worker_is_told_so(act: str) -> None:
    seen = await Desk().ask("POST", f"/admin/workers/w9/{act}")
    assert (seen.status, seen.code) == (404, "worker_not_found")


async def test_what_takes_no_field_says_so() -> None:
    desk = Desk()
    seen = await desk.ask("POST", "/admin/workers/w0/drain", {"force": True})
    assert (seen.status, seen.error["message"]) == (400, "body.force: unknown field; known: none")
    assert not desk.fleet.members["w0"].draining
    assert (await desk.ask("POST", "/admin/workers/w0/drain", {})).status == 200
