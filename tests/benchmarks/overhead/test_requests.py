"""Is what is asked as long as it says, and whole on the wire?"""

import json

import pytest

from benchmarks.overhead.requests import BODY_BYTES, body, wired


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens", [1, 512])
def test_bodies_have_one_length_whatever_they_ask_for(tokens: int, stream: bool) -> None:
    content = body(tokens, stream=stream)
    asked = json.loads(content)
    assert len(content) == BODY_BYTES
    assert (asked["max_tokens"], asked.get("stream", False)) == (tokens, stream)


def test_a_request_goes_with_its_key_to_its_host() -> None:
    head, _, content = wired("http://127.0.0.1:81", "sk-1", b"{}").partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /v1/chat/completions HTTP/1.1",
        b"host: 127.0.0.1:81",
        b"content-length: 2",
        b"content-type: application/json",
        b"authorization: Bearer sk-1",
    ]
    assert content == b"{}"
