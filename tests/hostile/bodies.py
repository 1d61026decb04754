"""Can a body mean one thing to the gateway and another to the worker, or cost more than it may?"""

import gzip
import zlib
from typing import Any

from tests.conftest import MODEL
from tests.e2e.callers import CHAT
from tests.hostile.cases import BODY, Case, asked, post, refused, request, served, spoken

JSON = "400 invalid_json"
TYPE = "400 invalid_type"
VALUE = "400 invalid_value"
MISSING = "400 missing_required_parameter"
UNSUPPORTED = "415 unsupported_media_type"
TOO_LARGE = "413 body_too_large"
OPEN = BODY[:-1]  # without its closing brace


def with_member(member: bytes) -> bytes:
    """A request with one member more."""
    return asked(OPEN + b"," + member + b"}")


def odd(name: str, member: bytes, shown: str = "") -> Case:
    return refused(name, JSON, with_member(member), shown)


def deep(
    name: str, levels: int, before: bytes, after: bytes, answer: str = JSON, field: bytes = b"x"
) -> Case:
    body = with_member(b'"%b":' % field + before * levels + b"1" + after * levels)
    return refused(name, answer, body, f'`"{field.decode()}":{(before * 3).decode()}...` {levels} levels')


def deeper(levels: int) -> list[Any]:
    """A list in a list, and so on."""
    inside: list[Any] = []
    for _ in range(levels - 1):
        inside = [inside]
    return inside


SYNTAX = [
    refused("empty", JSON, asked(b"")),
    refused("cut", JSON, asked(BODY[:-1])),
    refused("two objects", JSON, asked(BODY + BODY)),
    refused("something behind it", JSON, asked(BODY + b"x")),
    refused("a NUL behind it", JSON, asked(BODY + b"\0")),
    refused("a form feed behind it", JSON, asked(BODY + b"\x0c")),
    served("white space around it", asked(b" \t\r\n" + BODY + b" \t\r\n")),
    refused("a mark of byte order", JSON, asked(b"\xef\xbb\xbf" + BODY)),
    refused("UTF-16", JSON, asked(BODY.decode().encode("utf-16"))),
    refused("UTF-16 without a mark", JSON, asked(BODY.decode().encode("utf-16-le"))),
    refused("UTF-32", JSON, asked(BODY.decode().encode("utf-32"))),
    refused("a comment", JSON, asked(OPEN + b"/* */}")),
    refused("a comma at the end", JSON, asked(OPEN + b",}")),
    refused("other quotes", JSON, asked(BODY.replace(b'"', b"'"))),
    refused("an array", TYPE, asked(b"[" + BODY + b"]")),
    refused("a string", TYPE, asked(b'"x"')),
    refused("null", TYPE, asked(b"null")),
    odd("NaN", b'"x":NaN'),
    odd("Infinity", b'"x":[-Infinity]'),
    odd("NaN in a number that is read", b'"max_tokens":NaN'),
    odd("a number with a zero before it", b'"x":01'),
    odd("a number with a plus", b'"x":+1'),
    odd("a number in hex", b'"x":0x1'),
    odd("a number without a fraction", b'"x":1.'),
    odd("a number without an exponent", b'"x":1e'),
    odd("True", b'"x":True'),
    odd("half a surrogate, escaped", rb'"user":"\ud800"'),
    odd("the other half", rb'"user":"\udc00x"'),
    odd("two first halves", rb'"user":"\ud800\ud800"'),
    odd("half a surrogate in a name", rb'"\ud800":1'),
    odd("half a surrogate in a prompt", rb'"prompt":"\ud83dx"'),
    odd("half a surrogate as bytes", b'"user":"\xed\xa0\x80"'),
    served("both halves", with_member(rb'"user":"\ud83d\ude00"'), user="\U0001f600"),
    odd("no UTF-8", b'"user":"\xff"'),
    odd("UTF-8, too long", b'"user":"\xc0\xaf"'),
    odd("an escape that is none", rb'"user":"\q"'),
    odd("an escape cut short", rb'"user":"\u12"'),
    odd("a line inside a string", b'"user":"a\nb"'),
    odd("a NUL inside a string", b'"user":"a\0b"'),
    served("a NUL, escaped", with_member(rb'"user":"a\u0000b"'), user="a\0b"),
    deep("a million levels", 1_000_000, b"[", b"]"),
    deep("a million levels, not closed", 1_000_000, b"[", b""),
    deep("200000 levels of objects", 200_000, b'{"a":', b"}"),
    served(
        "500 levels of a schema",
        with_member(b'"response_format":' + b"[" * 500 + b"]" * 500),
        shown='`"response_format":[[[...` 500 levels',
    ),
    deep("501 levels of a schema", 501, b"[", b"]", VALUE, b"response_format"),
    deep("900 levels of a grammar", 900, b'{"a":', b"}", VALUE, b"structured_outputs"),
    deep(
        "900 levels among strings full of brackets", 900, b'["]]]","\\"]",', b"]", VALUE, b"response_format"
    ),
    refused("900 levels of a tool", VALUE, spoken("a", tools=[deeper(899)]), '`"tools":[[[...` 900 levels'),
    refused("400000 brackets in a tool", VALUE, spoken("a", tools=[[]] * 200_000), '`"tools":[[],[],...]`'),
    served("numbers that nobody can hold", with_member(b'"seed":' + b"9" * 60), seed=int("9" * 60)),
    served("-0 and 1e-999", with_member(b'"x":-0,"y":1e-999'), x=0, y=0.0),
]

TWICE = [
    served("model twice", asked(b'{"model":"other",' + BODY[1:]), model=MODEL),
    refused("model twice, the other way round", "404 model_not_found", with_member(b'"model":"other"')),
    served("model, escaped", asked(BODY.replace(b'"model"', rb'"\u006dodel"')), model=MODEL),
    refused("model twice, once escaped", "404 model_not_found", with_member(rb'"\u006dod\u0065l":"other"')),
    refused("Model", MISSING, asked(BODY.replace(b'"model"', b'"Model"'))),
    served("MODEL beside it", with_member(b'"MODEL":"other"'), model=MODEL),
    served("model with a blank beside it", with_member(b'"model ":"other"'), model=MODEL),
    served("model with a NUL beside it", with_member(rb'"model\u0000":"other"'), model=MODEL),
    served("max_tokens twice", with_member(b'"max_tokens":1'), max_tokens=1),
    served("max_tokens twice, once escaped", with_member(rb'"max_t\u006fkens":1'), max_tokens=1),
    refused("max_tokens twice, too many at last", VALUE, with_member(b'"max_tokens":99999')),
    served("n twice", with_member(b'"n":3,"n":2'), n=2),
    refused("n twice, too many at last", VALUE, with_member(b'"n":1,"n":100000')),
    refused("n twice, a wrong one first", TYPE, with_member(b'"n":"x","n":1')),
    served("stream twice", with_member(b'"stream":true,"stream":false'), stream=False),
    refused("stream twice, a wrong one first", TYPE, with_member(b'"stream":1,"stream":false')),
    served("prompt twice", with_member(b'"prompt":[7]'), prompt=[7]),
    refused("prompt twice, null at last", MISSING, with_member(b'"prompt":null')),
    served("priority twice", with_member(b'"priority":1,"priority":-5'), priority=0),
    served("priority, escaped", with_member(rb'"prior\u0069ty":-5'), priority=0),
    served("cache_salt twice", with_member(b'"cache_salt":"a","cache_salt":"b"'), seen=1),
    served(
        "kv_transfer_params, escaped",
        with_member(rb'"kv_transfer_p\u0061rams":{"a":1}'),
        kv_transfer_params=None,
    ),
    refused("stream_options without stream, once escaped", VALUE, with_member(rb'"stre\u0061m_options":{}')),
    served(
        "messages twice",
        post(
            CHAT,
            b'{"model":"smollm2","max_tokens":1,"messages":[{"role":"user"}],"messages":'
            b'[{"role":"user","content":"Hi"}]}',
        ),
        messages=[{"role": "user", "content": "Hi"}],
    ),
    served(
        "content twice",
        post(
            CHAT,
            b'{"model":"smollm2","max_tokens":1,"messages":[{"role":"user","content":"a","content":"Hi"}]}',
        ),
        messages=[{"role": "user", "content": "Hi"}],
    ),
    refused(
        "image_url twice, the web at last",
        "400 media_url_not_allowed",
        post(
            CHAT,
            b'{"model":"smollm2","messages":[{"role":"user","content":[{"image_url":"data:,",'
            b'"image_url":"http://evil.test"}]}]}',
        ),
    ),
]

FIELDS = [
    refused("max_tokens true", TYPE, asked(max_tokens=True)),
    refused("max_tokens as text", TYPE, asked(max_tokens="8")),
    refused("max_tokens with a fraction", TYPE, with_member(b'"max_tokens":1.0')),
    refused("max_tokens with an exponent", TYPE, with_member(b'"max_tokens":1e1')),
    refused("max_tokens 1e999", VALUE, with_member(b'"max_tokens":1e999')),
    refused("max_tokens -0", VALUE, with_member(b'"max_tokens":-0')),
    refused("max_tokens below 0", VALUE, asked(max_tokens=-1)),
    refused("max_tokens over 64 bits", VALUE, asked(max_tokens=2**64 + 1)),
    refused("max_tokens of 5000 digits", VALUE, with_member(b'"max_tokens":' + b"9" * 5000)),
    refused("n 0", VALUE, asked(n=0)),
    refused("n 100000", VALUE, asked(n=100_000)),
    refused("best_of 100000", "400 unsupported_parameter", asked(best_of=100_000)),
    refused("use_beam_search", "400 unsupported_parameter", asked(use_beam_search=True)),
    refused("stream 1", TYPE, asked(stream=1)),
    refused("stream_options an array", TYPE, asked(stream=True, stream_options=[])),
    refused(
        "stream_options of 5 kB",
        VALUE,
        asked(stream=True, stream_options={"x": "y" * 5000}),
        '`"stream_options":{"x":"yyy..."}`',
    ),
    refused("model a number", TYPE, asked(model=7)),
    refused("model an object", TYPE, asked(model={})),
    refused("model a path", "404 model_not_found", asked(model="../../etc/passwd")),
    refused("model a markup", "404 model_not_found", asked(model="<script>")),
    refused("prompt of several kinds", TYPE, asked(prompt=["a", 1])),
    refused("prompt nested", TYPE, asked(prompt=[[[1]]])),
    refused("5000 prompts", VALUE, asked(prompt=["a"] * 5000), '`"prompt":["a","a",...]`'),
    refused("guided_regex", "400 unsupported_parameter", asked(guided_regex="(a+)+$")),
    served(
        "fields that steer other gateways",
        asked(
            api_base="http://evil.test",
            base_url="http://evil.test",
            api_key="x",
            extra_body={"api_base": "http://evil.test"},
            metadata={"user_api_key": "x"},
            tenant="other",
        ),
    ),
    served(
        "identity in a body", asked(request_id="x", priority=-9, session_id="x"), priority=0, session_id=None
    ),
    served(
        "what reaches into a worker",
        asked(vllm_xargs={"a": 1}, ec_transfer_params={"a": 1}, mm_processor_kwargs={"size": 99}),
        vllm_xargs=None,
        ec_transfer_params=None,
        mm_processor_kwargs=None,
    ),
]


def coded(name: str, coding: str, body: bytes) -> Case:
    return refused(
        name,
        UNSUPPORTED,
        request(body, b"Content-Encoding: " + coding.encode()),
        f"`Content-Encoding: {coding}`",
    )


BOMB = gzip.compress(b" " * 10_000_000)
CODINGS = [
    coded("gzip", "gzip", gzip.compress(BODY)),
    coded("gzip of 10 MB", "gzip", BOMB),
    coded("gzip of gzip", "gzip, gzip", gzip.compress(BOMB)),
    coded("deflate", "deflate", zlib.compress(BODY)),
    coded("br", "br", BODY),
    coded("zstd", "zstd", BODY),
    coded("identity and gzip", "identity, gzip", gzip.compress(BODY)),
    coded("empty", "", BODY),
    served("identity", request(BODY, b"Content-Encoding: Identity")),
    refused("gzip that is not told", JSON, request(gzip.compress(BODY)), "the bytes of a gzip alone"),
    refused("text", UNSUPPORTED, request(kind=b"text/plain")),
    refused("a form", UNSUPPORTED, request(kind=b"application/x-www-form-urlencoded")),
    refused("several parts", UNSUPPORTED, request(kind=b"multipart/form-data; boundary=x")),
    refused("no type", UNSUPPORTED, request(kind=b"")),
    refused("two types", UNSUPPORTED, request(BODY, b"Content-Type: application/json")),
    refused("a type like JSON", UNSUPPORTED, request(kind=b"application/jsonx")),
    served("another charset, which JSON does not have", request(kind=b"application/json; charset=utf-16")),
]

ROOM = 8_000_000  # of a body, as these gateways are configured
MANY = b'{"model":"smollm2","max_tokens":1,'
SIZES = [
    Case(
        "a body over the limit by its length",
        request(b"", framing=b"Content-Length: %d" % (ROOM + 1)),
        (TOO_LARGE,),
        "waits",
    ),
    Case(
        "a length of 9 exabytes",
        request(b"", framing=b"Content-Length: 9223372036854775807"),
        (TOO_LARGE,),
        "waits",
    ),
    refused("a body over the limit", TOO_LARGE, asked(b" " * (ROOM + 1)), "8 MB and a byte"),
    refused(
        "chunks over the limit",
        TOO_LARGE,
        request(
            b"%x\r\n%b\r\n0\r\n\r\n" % (ROOM + 1, b" " * (ROOM + 1)), framing=b"Transfer-Encoding: chunked"
        ),
        "8 MB and a byte in a chunk",
    ),
    Case(
        "a chunk of 16 exabytes",
        request(b"fffffffffffffff\r\n" + b" " * (ROOM + 1), framing=b"Transfer-Encoding: chunked"),
        (TOO_LARGE,),
        "waits",
        shown="`fffffffffffffff`, and 8 MB of it",
    ),
    refused(
        "a million token ids",
        "400 context_length_exceeded",
        asked(MANY + b'"prompt":[' + b"1," * 999_000 + b"1]}"),
        '`"prompt":[1,1,...]`',
    ),
    refused(
        "more values than are read",
        JSON,
        asked(MANY + b'"prompt":[' + b"1000," * 1_000_000 + b"1]}"),
        '`"prompt":[1000,1000,...]` of 5 MB',
    ),
    refused(
        "600000 members of one name",
        JSON,
        with_member(b",".join([b'"n":1'] * 600_000) + b',"x":' + b"[" * 600),
        '`"n":1,"n":1,...` 600000 times, and no end',
    ),
    refused(
        "200000 messages",
        VALUE,
        post(CHAT, MANY + b'"messages":[' + b'{"role":"user"},' * 200_000 + b'{"role":"user"}]}'),
        '`"messages":[{"role":"user"},...]`',
    ),
    served(
        "a million brackets", with_member(b'"x":[' + b"[]," * 990_000 + b"[]]"), shown='`"x":[[],[],...]`'
    ),
    served("a text of 3 MB", asked(prompt="x" * 3_000_000), shown='`"prompt":"xxx..."`'),
    served(
        "a text of 3 MB, escaped",
        asked(MANY + b'"prompt":"' + rb"\n" * 1_500_000 + b'"}'),
        shown=r'`"prompt":"\n\n..."`',
    ),
    served("a name of 3 MB", with_member(b'"' + b"a" * 3_000_000 + b'":1'), shown='`"aaa...":1`'),
]
