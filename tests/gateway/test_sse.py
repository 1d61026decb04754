"""Does the watch see what a stream says, however its bytes are cut, and pass on every byte?"""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import sse
from gateway.model import Usage
from gateway.sse import Watch, payload_of

TOKEN = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
RUNNING = b'data: {"choices":[{"text":"a"}],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
NO_USAGE = b'data: {"choices":[{"text":"a"}],"usage":null}\n\n'
ERROR = b'data: {"error":{"message":"no","code":400}}\n\n'
COMMENT = b": still there\n\n"
DONE = b"data: [DONE]\n\n"

Facts = tuple[int, Usage | None, bytes | None, bool]


def facts(watch: Watch) -> Facts:
    return watch.events, watch.usage, watch.error, watch.done


def watched(*reads: bytes, hide_usage: bool = True) -> tuple[bytes, Facts]:
    """What goes on to the caller, and what was learned. As in the relay, an error ends it."""
    watch = Watch(hide_usage)
    out = b""
    for data in reads:
        out += watch.feed(data)
        if watch.error is not None:
            return out, facts(watch)
    return out + watch.rest(), facts(watch)


def test_an_event_passes_as_it_came() -> None:
    assert watched(TOKEN) == (TOKEN, (1, None, None, False))


def test_each_event_of_a_read_counts() -> None:
    assert watched(TOKEN * 3 + DONE) == (TOKEN * 3 + DONE, (3, None, None, True))


def test_an_event_is_held_until_it_is_whole() -> None:
    watch = Watch(hide_usage=True)
    assert watch.feed(TOKEN + TOKEN[:9]) == TOKEN
    assert watch.feed(TOKEN[9:-1]) == b""
    assert watch.events == 1
    assert watch.feed(TOKEN[-1:]) == TOKEN
    assert watch.events == 2


def test_usage_that_was_not_asked_for_stays_behind() -> None:
    assert watched(TOKEN, USAGE, DONE) == (TOKEN + DONE, (1, Usage(7, 2), None, True))


def test_usage_that_was_asked_for_passes_and_is_no_token() -> None:
    assert watched(TOKEN, USAGE, DONE, hide_usage=False) == (
        TOKEN + USAGE + DONE,
        (1, Usage(7, 2), None, True),
    )


def test_usage_is_usage_however_it_is_spaced() -> None:
    event = b'data: {"choices":[], "usage" :  {"prompt_tokens":7,"completion_tokens":2}}\n\n'
    assert watched(event) == (b"", (0, Usage(7, 2), None, False))
    assert watched(TOKEN + event) == (TOKEN, (1, Usage(7, 2), None, False))


def test_running_totals_pass_with_their_tokens_and_the_last_counts() -> None:
    assert watched(RUNNING, RUNNING, USAGE) == (RUNNING * 2, (2, Usage(7, 2), None, False))


def test_usage_null_is_no_usage() -> None:
    assert watched(NO_USAGE) == (NO_USAGE, (1, None, None, False))


def test_an_event_without_choices_or_usage_is_kept() -> None:
    event = b'data: {"choices":[],"usage":null}\n\n'
    assert watched(event) == (event, (1, None, None, False))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3}, Usage(3, 0)),
        ({"prompt_tokens": 3, "completion_tokens": None}, Usage(3, 0)),
        ({"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": None}, Usage(3, 4)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": None}}, Usage(3, 0)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}, Usage(3, 0, 2)),
        ({"prompt_tokens": 3, "completion_tokens": 4, "unknown": {"a": 1}}, Usage(3, 4)),
    ],
)
def test_usage_is_read_with_what_it_lacks(usage: dict[str, object], expected: Usage) -> None:
    event = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    assert watched(event) == (b"", (0, expected, None, False))


def test_an_error_first_does_not_go_on() -> None:
    payload = ERROR[6:-2]
    assert watched(ERROR, DONE) == (b"", (0, None, payload, False))


def test_what_comes_before_an_error_goes_on_and_nothing_after_it() -> None:
    assert watched(TOKEN + ERROR + TOKEN + DONE) == (TOKEN, (1, None, ERROR[6:-2], False))


def test_an_error_that_is_null_is_none() -> None:
    event = b'data: {"choices":[{"text":"a"}],"error":null}\n\n'
    assert watched(event) == (event, (1, None, None, False))


@pytest.mark.parametrize("text", ["[DONE]", '"usage":{"prompt_tokens":1}', '"error":{}', "data: [DONE]\n\n"])
def test_marks_within_generated_text_mean_nothing(text: str) -> None:
    event = b"data: " + json.dumps({"choices": [{"text": text}]}).encode() + b"\n\n"
    assert watched(event) == (event, (1, None, None, False))


@pytest.mark.parametrize(
    "payload", [b'{"usage":', b'"usage": "error":', b'{"usage":7}', b'{"usage":\xff}', b'[{"error":1}]']
)
def test_what_is_no_object_of_the_api_passes_unjudged(payload: bytes) -> None:
    event = b"data: " + payload + b"\n\n"
    assert watched(event) == (event, (1, None, None, False))


def test_a_comment_passes_and_is_no_token() -> None:
    assert watched(COMMENT) == (COMMENT, (0, None, None, False))
    assert watched(COMMENT + TOKEN) == (COMMENT + TOKEN, (1, None, None, False))
    assert watched(COMMENT + USAGE) == (COMMENT, (0, Usage(7, 2), None, False))


def test_other_fields_of_an_event_pass_with_it() -> None:
    event = b"event: message\nid: 7\n" + TOKEN
    assert watched(event) == (event, (1, None, None, False))


def test_data_over_several_lines_is_one_payload() -> None:
    event = b'data: {"choices":[],\ndata: "usage":{"prompt_tokens":7,\ndata:"completion_tokens":2}}\n\n'
    assert watched(event) == (b"", (0, Usage(7, 2), None, False))
    text = b"data: one\ndata: two\n\n"
    assert watched(text) == (text, (1, None, None, False))


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_other_line_ends_are_line_ends(end: bytes) -> None:
    stream = (TOKEN + COMMENT + USAGE + DONE).replace(b"\n", end)
    kept = (TOKEN + COMMENT + DONE).replace(b"\n", end)
    assert watched(stream) == (kept, (1, Usage(7, 2), None, True))


def test_an_event_that_never_ends_is_handed_out_at_the_end() -> None:
    watch = Watch(hide_usage=True)
    assert watch.feed(TOKEN + b"data: half") == TOKEN
    assert watch.rest() == b"data: half"
    assert watch.rest() == b""


def test_a_giant_event_passes_unread_rather_than_be_kept() -> None:
    watch = Watch(hide_usage=True)
    half = b"data: " + b"x" * sse.MAX_PENDING_BYTES
    assert watch.feed(half) == half
    assert watch.may_be_inside
    assert watch.feed(b'"usage":\n\n' + USAGE) == b'"usage":\n\n'
    assert watch.usage == Usage(7, 2)


def test_an_event_just_below_that_is_still_held() -> None:
    watch = Watch(hide_usage=True)
    half = b"data: " + b"x" * (sse.MAX_PENDING_BYTES - 6)
    assert watch.feed(half) == b""
    assert not watch.may_be_inside
    assert watch.feed(b"\n\n") == half + b"\n\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("hide_usage", [True, False])
def test_a_cut_at_any_place_changes_nothing(end: bytes, hide_usage: bool) -> None:
    stream = (COMMENT + TOKEN + RUNNING + b"event: a\n" + TOKEN + USAGE + DONE).replace(b"\n", end)
    whole = watched(stream, hide_usage=hide_usage)
    assert whole[1] == (3, Usage(7, 2), None, True)
    for place in range(len(stream) + 1):
        assert watched(stream[:place], stream[place:], hide_usage=hide_usage) == whole
    single = [stream[place : place + 1] for place in range(len(stream))]
    assert watched(*single, hide_usage=hide_usage) == whole


texts = st.text(st.sampled_from('a"\\\n\r:é 😀[DONE]'), max_size=8)
payloads = st.one_of(
    st.builds(lambda text: json.dumps({"choices": [{"text": text}]}).encode(), texts),
    st.builds(lambda text: json.dumps({"usage": text, "error": None}, ensure_ascii=False).encode(), texts),
    st.sampled_from([b"[DONE]", b"", b"{", USAGE[6:-2], RUNNING[6:-2], NO_USAGE[6:-2], ERROR[6:-2]]),
)
lines = st.one_of(payloads.map(lambda payload: b"data: " + payload), st.sampled_from([b": hm", b"id: 1"]))
events = st.lists(lines, min_size=1, max_size=3).map(lambda few: b"\n".join(few) + b"\n\n")


@given(
    stream=st.lists(events, max_size=6).map(b"".join),
    tail=st.sampled_from([b"", b"data: {", b"\n"]),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    places=st.lists(st.integers(0, 400), max_size=8),
    hide_usage=st.booleans(),
)
def test_how_a_stream_is_cut_changes_neither_bytes_nor_facts(
    stream: bytes, tail: bytes, end: bytes, places: list[int], hide_usage: bool
) -> None:
    stream = (stream + tail).replace(b"\n", end)
    places = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    reads = [stream[begin:end] for begin, end in pairwise(places)]
    assert watched(*reads, hide_usage=hide_usage) == watched(stream, hide_usage=hide_usage)


@given(st.lists(st.binary(max_size=30), max_size=8), st.booleans())
def test_no_bytes_are_lost_or_made_up(reads: list[bytes], hide_usage: bool) -> None:
    out, (_, usage, error, _) = watched(*reads, hide_usage=hide_usage)
    assert (usage, error) == (None, None)  # random bytes say nothing
    assert out == b"".join(reads)


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\r\n\r\n", b"a"),
        (b"data:  a \n\n", b" a "),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b": comment\nid: 1\ndata: a\nretry: 5\n\n", b"a"),
        (b": comment\n\n", b""),
        (b"datas: a\n\n", b""),
        (b"data: \xc2\x85a\x0bb\n\n", b"\xc2\x85a\x0bb"),
    ],
)
def test_the_payload_of_an_event_is_its_data_lines(event: bytes, payload: bytes) -> None:
    assert payload_of(event) == payload
