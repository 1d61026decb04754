"""Is a page shown by its method, and told of each failure with what it had learnt by then?"""

import pytest
from starlette.routing import Route

from gateway.errors import NotFound, StoreUnavailable
from gateway.pages import Page, Reply, Show, Visit, alive, router
from tests.gateway.visiting import visit


def showing(content: object, status: int = 200) -> Show:
    async def show(visit: Visit) -> Reply:
        return Reply(content, status)

    return show


def raising(error: Exception) -> Show:
    async def show(visit: Visit) -> Reply:
        visit.headers.append((b"x-learnt", b"1"))
        raise error

    return show


async def test_a_page_shows_what_belongs_to_the_method() -> None:
    page = Page(GET=showing({"a": 1}), POST=showing({"b": 2}, 201))
    seen = await visit(page, "/")
    assert (seen.status, seen.json()) == (200, {"a": 1})
    seen = await visit(page, "/", method="POST")
    assert (seen.status, seen.json()) == (201, {"b": 2})


async def test_head_is_answered_as_get() -> None:
    page = Page(GET=showing({"a": 1}))
    seen = await visit(page, "/", method="HEAD")
    assert (seen.status, seen.json()) == (200, {"a": 1})


@pytest.mark.parametrize(
    ("page", "method", "allow"),
    [
        (Page(GET=alive), "POST", "GET, HEAD"),
        (Page(GET=alive), "BREW", "GET, HEAD"),
        (Page(POST=alive), "HEAD", "POST"),
        (Page(GET=alive, PUT=alive, DELETE=alive), "POST", "DELETE, GET, HEAD, PUT"),
    ],
)
async def test_other_methods_are_told_which_there_are(page: Page, method: str, allow: str) -> None:
    seen = await visit(page, "/here", method=method)
    assert (seen.status, seen.code, seen.headers["allow"]) == (405, "method_not_allowed", allow)
    assert seen.error["message"] == f"/here takes {allow}."


async def test_bytes_are_shown_as_they_are() -> None:
    async def show(visit: Visit) -> Reply:
        return Reply(b"a 1\n", media_type=b"text/plain")

    seen = await visit(Page(GET=show), "/")
    assert (seen.text, seen.headers["content-type"]) == (b"a 1\n", "text/plain")


async def test_headers_that_were_learnt_leave_also_with_an_error() -> None:
    seen = await visit(Page(GET=raising(NotFound("No."))), "/")
    assert (seen.status, seen.code, seen.headers["x-learnt"]) == (404, "not_found", "1")
    seen = await visit(Page(GET=raising(StoreUnavailable("Later.", retry_after_s=2))), "/")
    assert (seen.status, seen.headers["retry-after"]) == (503, "2")


async def test_a_bug_is_told_without_its_text_and_logged_with_it(caplog: pytest.LogCaptureFixture) -> None:
    seen = await visit(Page(GET=raising(ZeroDivisionError("secret"))), "/", (b"x-request-id", b"mine"))
    assert (seen.status, seen.code, seen.headers["x-learnt"]) == (500, "internal_error", "1")
    assert b"secret" not in seen.text
    [record] = caplog.records
    assert record.getMessage() == "request mine failed by a bug of the gateway"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


@pytest.mark.parametrize("path", ["/here", "/there"])
async def test_every_answer_has_an_id_and_tells_its_time(path: str) -> None:
    app = router(Route("/here", Page(GET=alive)), otherwise="No.")
    seen = await visit(app, path, (b"x-request-id", b"mine"))
    assert seen.headers["x-request-id"] == "mine"
    assert seen.headers["openai-processing-ms"].isdigit()
    assert len((await visit(app, path)).headers["x-request-id"]) == 32


@pytest.mark.parametrize("path", ["/", "/here/", "/Here", "//here", "/here/x"])
async def test_paths_are_taken_exactly(path: str) -> None:
    app = router(Route("/here", Page(GET=alive)), otherwise="Nothing but /here.")
    seen = await visit(app, path)
    assert (seen.status, seen.code, seen.error["message"]) == (404, "not_found", "Nothing but /here.")
