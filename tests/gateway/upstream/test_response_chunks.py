"""Is what passes without the parser what the parser would have found, and is all else left to it?"""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.response import MAX_HEAD_BYTES, BrokenResponse, ResponseReader

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"5\r\nabcde\r\n"


class Reading:
    """One answer read, with what passes without the parser or, `is_fed`, all of it through that."""

    def __init__(self, is_fed: bool) -> None:
        self.is_fed = is_fed
        self.reader = ResponseReader()
        self.reader.start()
        self.body = b""
        self.failure = ""
        self.passed = 0  # pieces that the parser did not see

    def take(self, piece: bytes) -> None:
        """As a connection does while its answer is poured out."""
        reader = self.reader
        part = None if self.is_fed else reader.of_whole_chunks(piece)
        if part is not None:
            self.body += part
            self.passed += 1
        elif reader.complete:
            self.failure = "bytes that nobody asked for"
        else:
            try:
                reader.feed(piece)
            except BrokenResponse as error:
                self.failure = str(error)
            self.body += reader.take()

    def end(self) -> None:
        if not self.failure and not self.reader.complete:
            try:
                self.reader.end()
            except BrokenResponse as error:
                self.failure = str(error)

    def facts(self) -> tuple[object, ...]:
        reader = self.reader
        return self.body, self.failure, reader.complete, reader.keep_alive, reader.begun, reader._quiet_bytes


def both(pieces: list[bytes]) -> Reading:
    """Reads the pieces in both ways, and sees to it that they agree after each."""
    fed, passed = Reading(is_fed=True), Reading(is_fed=False)
    for piece in filter(None, pieces):
        fed.take(piece)
        passed.take(piece)
        assert passed.facts() == fed.facts(), piece
        if fed.failure:
            break
    fed.end()
    passed.end()
    assert passed.facts() == fed.facts()
    return passed


def between_chunks() -> Reading:
    """After the first chunk."""
    reading = Reading(is_fed=False)
    reading.take(CHUNKED)
    reading.take(CHUNK)
    assert reading.passed == 0
    return reading


# What passes


@pytest.mark.parametrize(
    ("piece", "part"),
    [
        (b"1\r\na\r\n", b"a"),
        (b"a\r\n0123456789\r\n", b"0123456789"),
        (b"A\r\n0123456789\r\n", b"0123456789"),
        (b"1b\r\n%b\r\n" % bytes(27), bytes(27)),
        (b"1B\r\n%b\r\n" % bytes(27), bytes(27)),
        (b"2\r\n\r\n\r\n", b"\r\n"),
        (b"7\r\n1\r\na\r\n0\r\n", b"1\r\na\r\n0"),
        (b"5\r\n0\r\n\r\n\r\n", b"0\r\n\r\n"),
        (b"1\r\na\r\n2\r\nbc\r\n", b"abc"),
        (b"1\r\na\r\n1\r\n\n\r\nC\r\n%b\r\n" % bytes(12), b"a\n" + bytes(12)),
        (b"100000\r\n%b\r\n" % bytes(1 << 20), bytes(1 << 20)),
    ],
)
def test_whole_chunks_pass_without_the_parser(piece: bytes, part: bytes) -> None:
    assert between_chunks().reader.of_whole_chunks(piece) == part
    reading = both([CHUNKED + CHUNK, piece, b"0\r\n\r\n"])
    assert (reading.body, reading.passed, reading.reader.complete) == (b"abcde" + part, 1, True)


@pytest.mark.parametrize("cut", range(1, len(CHUNK)))
def test_they_pass_again_once_the_parser_has_seen_the_end_of_a_chunk(cut: int) -> None:
    reading = both([CHUNKED, CHUNK, CHUNK, CHUNK[:cut], CHUNK[cut:], CHUNK])
    assert (reading.body, reading.passed) == (b"abcde" * 4, 2)


def test_the_answer_after_next_passes_as_the_first_did() -> None:
    reader = ResponseReader()
    for _ in range(2):
        reader.start()
        reader.feed(CHUNKED + CHUNK)
        assert reader.of_whole_chunks(CHUNK) == b"abcde"
        reader.feed(b"0\r\n\r\n")
        assert (reader.complete, reader.keep_alive) == (True, True)


# What does not


@pytest.mark.parametrize(
    "piece",
    [
        b"0\r\n\r\n",
        b"00\r\n\r\n",
        b"1\r\na\r\n0\r\n\r\n",
        b"05\r\nabcde\r\n",
        b"5;a=b\r\nabcde\r\n",
        b"5;\r\nabcde\r\n",
        b"1\r\na\r\n5;a=b\r\nabcde\r\n",
        b"+5\r\nabcde\r\n",
        b"-5\r\nabcde\r\n",
        b"0x5\r\nabcde\r\n",
        b"1_0\r\n%b\r\n" % bytes(16),
        b" 5\r\nabcde\r\n",
        b"5 \r\nabcde\r\n",
        b"5\t\r\nabcde\r\n",
        b"\r\n5\r\nabcde\r\n",
        b"5\nabcde\r\n",
        b"5\rabcde\r\n",
        b"g\r\nabcde\r\n",
        "\u0665\r\nabcde\r\n".encode(),
        b"\r\n",
        b"5",
        b"5\r\n",
        b"5\r\nabcde",
        b"5\r\nabcde\r",
        b"5\r\nabcde\n",
        b"5\r\nabcde\r\n\r\n",
        b"5\r\nabcdexy",  # as long as it should be
        b"5\r\nabcde\rx",
        b"5\r\nabcdex\n",
        b"5\r\nabcde\n\r",
        b"1\r\na\r\n5\r\nabcdexy",
        b"1\r\naxy5\r\nabcde\r\n",
        b"5\r\nabcdef\r\n",
        b"5\r\nabcd\r\n",
        b"5\r\nabc\r\n\r",
        b"3\r\nabcde\r\n",
        b"1\r\na\r\n5\r\nabcd\r\n",
        b"1\r\na\r\n5",
        b"00000005\r\nabcde\r\n",
        b"10000000\r\nabcde\r\n",
        b"ffffffffffffffff\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_all_else_is_for_the_parser(piece: bytes) -> None:
    assert between_chunks().reader.of_whole_chunks(piece) is None
    both([CHUNKED + CHUNK, piece, CHUNK])


def test_a_chunk_whose_size_has_more_than_seven_digits_is_for_the_parser() -> None:
    data = bytes(1 << 28)  # eight digits
    assert between_chunks().reader.of_whole_chunks(b"%x\r\n%b\r\n" % (len(data), data)) is None


@pytest.mark.parametrize(
    "before",
    [
        b"",  # nothing but the head
        CHUNK + b"3",  # within a size: of 35 (hex) bytes, and not of 5
        CHUNK + b"3\r",
        CHUNK + b"5;a",
        CHUNK + b"a\r\n",  # within a chunk, whose data looks like one
        CHUNK + b"b\r\n\n",
        CHUNK + CHUNK[:-2],
        CHUNK + CHUNK[:-1],
        CHUNK + b"0",
        CHUNK + b"0\r\n",  # among the trailers
        CHUNK + b"0\r\nX-Trailer: 1\r\n",
        CHUNK + b"0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_nothing_passes_while_the_parser_is_not_between_two_chunks(before: bytes, apart: bool) -> None:
    pieces = [before[at : at + 1] for at in range(len(before))] if apart else [before]
    reading = both([CHUNKED, *pieces])
    assert reading.reader.of_whole_chunks(CHUNK) is None
    both([CHUNKED, *pieces, CHUNK, CHUNK])


def test_a_size_whose_first_digit_came_before_is_read_with_it() -> None:
    data = bytes(0x35)
    reading = both([CHUNKED + CHUNK + b"3", b"5\r\n%b\r\n" % data, CHUNK])
    assert (reading.body, reading.passed) == (b"abcde" + data + b"abcde", 1)


@pytest.mark.parametrize(
    "head",
    [
        OK + b"Content-Length: 30\r\n\r\n",
        OK + b"\r\n",  # until the connection ends
        b"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n"
        + OK
        + b"Content-Length: 30\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_body_in_no_chunks_is_for_the_parser_whatever_it_looks_like(head: bytes) -> None:
    assert both([head, CHUNK, CHUNK, CHUNK]).passed == 0


def test_nothing_passes_before_a_request_was_sent_or_between_two() -> None:
    reader = ResponseReader()
    assert reader.of_whole_chunks(CHUNK) is None
    reader.start()
    reader.feed(CHUNKED + CHUNK)
    reader.start()
    assert reader.of_whole_chunks(CHUNK) is None


def test_bytes_after_the_end_are_nobodys() -> None:
    reading = both([CHUNKED, CHUNK, CHUNK, b"0\r\n\r\n", CHUNK])
    assert (reading.reader.complete, reading.failure) == (True, "bytes that nobody asked for")
    reading = both([CHUNKED, CHUNK, CHUNK, b"0\r\n\r\n" + CHUNK])
    assert (reading.reader.complete, reading.reader.keep_alive, reading.failure) == (True, False, "")


def test_the_bounds_of_a_chunk_extension_do_not_depend_on_who_read_the_chunks_before() -> None:
    extension = [b"1;x=", *[b"y" * 4096] * 16]
    for kept_bytes in range(8):
        size_line = b"".join(extension)[: MAX_HEAD_BYTES - 4 + kept_bytes]
        both([CHUNKED, CHUNK[:-2], b"\r\n", CHUNK, size_line, b"\r\na\r\n", CHUNK])


# Both ways, whatever comes

SAMPLE = (
    CHUNKED + CHUNK + b"2\r\n\r\n\r\n" + b"8;x=y\r\n1\r\na\r\n0\r\r\n" + b"A\r\n5\r\nabcde\r\n\r\n" + CHUNK
)
ENDED = SAMPLE + b"0\r\nX-Trailer: 1\r\n\r\n"


def test_a_stream_cut_at_any_two_places_is_the_same_both_ways() -> None:
    places = range(len(CHUNKED), len(ENDED))
    for cuts in combinations(places, 2):
        reading = both([ENDED[begin:end] for begin, end in pairwise((0, *cuts, len(ENDED)))])
        assert reading.reader.complete
        assert reading.body == b"abcde\r\n1\r\na\r\n0\r5\r\nabcde\r\nabcde"


contents = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.lists(st.sampled_from([b"\r\n", b"\r", b"\n", b"5", b"0", b"5\r\nabcde\r\n", b"0\r\n\r\n", b"a"]))
    .map(b"".join)
    .filter(bool),
)
formats = st.sampled_from(
    [b"%x", b"%x", b"%x", b"%X", b"0%x", b"%x;a=b", b'%x;name="x"', b"%x ", b"+%x", b"0x%x"]
)
flaws = st.sampled_from([b""] * 12 + [b"x", b"\r\n", b"\r", b"\n", b"0\r\n\r\n"])
closings = st.sampled_from([b"\r\n"] * 12 + [b"xy", b"\rx", b"x\n", b"\n\r"])
chunks = st.builds(
    lambda data, form, flaw, closing: (form % len(data)) + b"\r\n" + data + flaw + closing,
    *(contents, formats, flaws, closings),
)
heads = st.sampled_from(
    [
        *[CHUNKED] * 6,
        OK + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        OK + b"Content-Length: 30\r\n\r\n",
        OK + b"\r\n",
    ]
)
ends = st.sampled_from(
    [b"0\r\n\r\n", b"0\r\n\r\n", b"000\r\n\r\n", b"0\r\nX-T: 1\r\n\r\n", b"0;a\r\n\r\n", b"", b"0\r\n"]
)
tails = st.sampled_from([b"", b"", b"", CHUNK, b"x", b"\r\n", CHUNKED + CHUNK])


@st.composite
def cut_answers(draw: st.DrawFn) -> list[bytes]:
    """Pieces of an answer, mostly sound; many of the cuts are where chunks meet."""
    parts = [draw(heads), *draw(st.lists(chunks, max_size=8)), draw(ends), draw(tails)]
    text = b"".join(parts)
    seams, at = [], 0
    for part in parts:
        at += len(part)
        seams.append(at)
    cuts = draw(st.sets(st.sampled_from(seams)) | st.just(set(seams)))
    cuts |= draw(st.sets(st.integers(0, len(text)), max_size=4))
    return [text[begin:end] for begin, end in pairwise(sorted({0, *cuts, len(text)}))]


@settings(max_examples=500, deadline=None)
@given(cut_answers())
def test_however_an_answer_is_made_and_cut_it_is_the_same_both_ways(pieces: list[bytes]) -> None:
    both(pieces)


@given(st.lists(contents, min_size=2, max_size=8), st.data())
def test_sound_chunks_are_read_whole_in_both_ways(bodies: list[bytes], data: st.DataObject) -> None:
    framed = [b"%x\r\n%b\r\n" % (len(body), body) for body in bodies]
    groups = data.draw(st.lists(st.integers(1, len(framed)), unique=True).map(sorted))
    pieces = [b"".join(framed[begin:end]) for begin, end in pairwise([0, *groups, len(framed)])]
    reading = both([CHUNKED, *pieces, b"0\r\n\r\n"])
    assert (reading.body, reading.reader.complete) == (b"".join(bodies), True)
    assert reading.passed == len([piece for piece in pieces if piece]) - 1  # all but the first
