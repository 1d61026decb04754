"""Is each head that could be read in two ways refused, and none that could not?"""

import pytest
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from gateway.errors import BadRequest, HeadTooLarge, InternalError, MethodNotAllowed
from gateway.framing import (
    MAX_HEAD_BYTES,
    MOST_WAITING,
    check,
    check_odd,
    check_size,
    problem_of,
    without_upgrade,
)
from gateway.model import Fields

HOST = {b"host": b"h"}
CODINGS = (b"", b"identity", b"xchunked", b"chunked, chunked", b"gzip, chunked", b"chunked, identity")
CHUNKED = {**HOST, b"transfer-encoding": b"chunked"}


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        (HOST, "1.1"),
        ({}, "1.0"),
        (CHUNKED, "1.1"),
        ({**HOST, b"transfer-encoding": b"CHUNKED \t"}, "1.1"),
        ({**HOST, b"content-length": b"0" * 19}, "1.1"),
    ],
)
def test_what_has_one_reading_passes(fields: Fields, version: str) -> None:
    check(fields, version)


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({}, "1.1"),
        *[({b"host": host}, "1.1") for host in (b"a/b", b"a?b", b"a#b", b"u@h", b"a\\b", b"a b", b"a, b")],
        *[({b"host": host}, "1.1") for host in (b"\xff", b"<h>", b'"h"', b"{h}", b"a|b", b"a^b", b"a`b")],
        (HOST, "0.9"),
        (HOST, "2.0"),
        (CHUNKED, "1.0"),
        ({**CHUNKED, b"content-length": b"1"}, "1.1"),
        *[({**HOST, b"transfer-encoding": coding}, "1.1") for coding in CODINGS],
        ({**HOST, b"content-length": b"0" * 20}, "1.1"),
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_does_not(fields: Fields, version: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check(fields, version)
    assert refused.value.code == "invalid_http"


def test_a_head_is_measured_as_it_goes_over_the_wire() -> None:
    check_size(b"/x", [(b"a", b"b" * (MAX_HEAD_BYTES - 7))])
    with pytest.raises(HeadTooLarge):
        check_size(b"/x", [(b"a", b"b" * (MAX_HEAD_BYTES - 6))])


@pytest.mark.parametrize("url", [b"/x?y", b"*", b"http://h/x", b"http://h/"])
def test_targets_of_any_form_pass(url: bytes) -> None:
    check_odd(url, "1.0", MOST_WAITING - 1)


@pytest.mark.parametrize(
    ("url", "version", "waiting"),
    [
        (b"/x#y", "1.1", 0),
        (b"http://h", "1.1", 0),
        (b"http://h?x", "1.1", 0),
        (b"/x", "0.9", 0),
        (b"/x", "1.1", MOST_WAITING),
    ],
)
def test_targets_without_a_path_old_versions_and_too_many_at_once_do_not(
    url: bytes, version: str, waiting: int
) -> None:
    with pytest.raises(BadRequest):
        check_odd(url, version, waiting)


def read(head: bytes) -> HttpRequestParser:
    parser = HttpRequestParser(object())
    with pytest.raises(HttpParserUpgrade):
        parser.feed_data(head)
    return parser


def test_an_offer_is_taken_out_of_a_head_and_all_else_stays() -> None:
    head = b"PUT /x?y HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\n%bx-more: 1\r\n\r\n"
    headers = [(b"host", b"h"), (b"connection", b"upgrade"), (b"upgrade", b"h2c"), (b"x-more", b"1")]
    parser = read(head % b"upgrade: h2c\r\n")
    assert without_upgrade(parser, b"/x?y", headers) == head % b""


def test_a_tunnel_is_refused() -> None:
    with pytest.raises(MethodNotAllowed):
        without_upgrade(read(b"CONNECT h:80 HTTP/1.1\r\n\r\n"), b"h:80", [])


def test_whatever_ends_the_reading_is_told_as_what_it_is() -> None:
    ours, wrapped, bug = HeadTooLarge(""), HttpParserCallbackError(), HttpParserCallbackError()
    wrapped.__context__ = ours
    bug.__context__ = ZeroDivisionError()
    assert problem_of(ours) is problem_of(wrapped) is ours
    assert problem_of(HttpParserError("x")).code == "invalid_http"
    assert isinstance(problem_of(bug), InternalError)
