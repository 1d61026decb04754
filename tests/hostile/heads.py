"""Can a target, a Host or another header lead past what a request must show, or to something else?"""

from tests.conftest import KEY
from tests.e2e.callers import COMPLETIONS
from tests.hostile.cases import BODY, FIRST, HOST, Case, get, invalid, post, refused, request, served

NOT_FOUND = "404 not_found"
NO_KEY = "401 invalid_api_key"
METHOD = "405 method_not_allowed"
TOO_LARGE = "431 head_too_large"

# Of the worker, which guards less than all of them with its own key.
HIDDEN_PATHS = (
    "/invocations",
    "/tokenize",
    "/detokenize",
    "/inference/v1/generate",
    "/pooling",
    "/score",
    "/metrics",
    "/v1/embeddings",
    "/v1/load_lora_adapter",
    "/sleep",
    "/wake_up",
    "/reset_prefix_cache",
    "/server_info",
    "/admin/keys",
    "/docs",
    "/openapi.json",
    "/v1",
    "/",
)
# What a router may take for another path than a check before it.
ODD_PATHS = (
    "//v1/completions",
    "/v1//completions",
    "/V1/completions",
    "/v1/Completions",
    "/v1/completions/",
    "/v1/%63ompletions",
    "/v1/completions%20",
    "/v1/completions%00",
    "/v1/completions%2f",
    "/v1/completions;x",
    "/x/../v1/completions",
    "/./v1/completions",
    "/v1/../v1/completions",
    "/v1\\completions",
    "/v1/completions/../models",
    "/health/../v1/completions",
    "/%2e%2e/v1/completions",
    "/v1/completions.json",
)
VERSIONS = (b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3.0", b"HTTP/1.10", b"HTTP/01.1", b"http/1.1")
FIRST_LINES = (
    b"POST /v1/completions",
    b"POST /v1/completions HTTP/1.1 ",
    b" POST /v1/completions HTTP/1.1",
    b"POST\t/v1/completions\tHTTP/1.1",
    b"POST /v1/completions\tHTTP/1.1",
    b"POST /v1/completions",
    b"post /v1/completions HTTP/1.1",
    b"POSTX /v1/completions HTTP/1.1",
    b"POST\x00 /v1/completions HTTP/1.1",
    b"POST /v1/completions ICE/1.0",
    b"/v1/completions HTTP/1.1",
)
BAD_HOSTS = (
    b"gateway/v1",
    b"gateway?x",
    b"gateway#x",
    b"user@gateway",
    b"gate way",
    b"gateway, evil.test",
    b"gateway\\x",
    b"<gateway>",
    b"\xff",
    b'"gateway"',
    b"gateway|x",
)
BAD_LINES = (
    b": a",
    b"X A: a",
    b"X(A): a",
    b"X-A\x00: a",
    b"X-\xff: a",
    b"X-A",
    b"X-A: a\x00b",
    b"X-A: a\x01b",
    b"X-A: a\x7fb",
)

TARGETS = [
    *[refused(f"POST {path}", NOT_FOUND, post(path)) for path in (*HIDDEN_PATHS, *ODD_PATHS)],
    *[refused(f"POST {path} without a key", NOT_FOUND, post(path, key=None)) for path in ODD_PATHS[:6]],
    refused("no key", NO_KEY, request(key=None)),
    refused(
        "a key in the query", NO_KEY, post(f"{COMPLETIONS}?api_key={KEY}", key=None), "`?api_key=`(the key)"
    ),
    served("a query", post(COMPLETIONS + "?model=other&api_key=x")),
    served("a whole URL", post("http://gateway" + COMPLETIONS)),
    served("a whole URL of somebody else", post("http://evil.test:1" + COMPLETIONS)),
    served("a whole URL with a user", post("http://user:pass@evil.test" + COMPLETIONS)),
    refused("a whole URL without a key", NO_KEY, post("http://gateway" + COMPLETIONS, key=None)),
    invalid("a whole URL without a path", post("http://gateway")),
    invalid("a whole URL without a path, with a query", post("http://gateway?x")),
    invalid("a whole URL with a port that is none", post("http://gateway:99999" + COMPLETIONS)),
    refused("an asterisk", NOT_FOUND, get(b"*", method=b"OPTIONS")),
    refused("a model in another folder", "404 model_not_found", get(b"/v1/models/../../etc/passwd")),
    refused("a model with a NUL", "404 model_not_found", get(b"/v1/models/%00")),
    Case("a model, escaped", get(b"/v1/models/%73mollm2"), ("200",)),
    invalid("a host alone", post("gateway:80")),
    invalid("a fragment", post(COMPLETIONS + "#x")),
    invalid("no slash", post("v1/completions")),
    invalid("a NUL in a target", post(COMPLETIONS + "\0")),
    invalid("a tab in a target", post(COMPLETIONS + "\tx")),
    invalid("a byte above ASCII in a target", request(first=b"POST /v1/completions\xff HTTP/1.1")),
    Case("a target of 70 kB", post("/" + "x" * 70_000), (TOO_LARGE,), "closed", shown="`/xxx...` of 70 kB"),
]

LINES = [
    *[invalid(f"version {of.decode()}", request(first=FIRST.replace(b"HTTP/1.1", of))) for of in VERSIONS],
    *[invalid(f"first line {number}", request(first=line)) for number, line in enumerate(FIRST_LINES, 1)],
    served("two blanks in the first line", request(first=b"POST  /v1/completions  HTTP/1.1")),
    *[
        refused(f"method {of}", METHOD, request(first=FIRST.replace(b"POST", of.encode())))
        for of in ("GET", "PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "PROPFIND", "M-SEARCH", "QUERY")
    ],
    Case("method CONNECT", get(b"evil.test:443", method=b"CONNECT"), (METHOD,), "closed"),
    refused("another method in a header", METHOD, get(COMPLETIONS.encode(), b"X-HTTP-Method-Override: POST")),
    invalid("no Host", request(host=b"")),
    invalid("Host twice", request(BODY, b"Host: evil.test")),
    invalid("Host twice, the same", request(BODY, HOST)),
    *[invalid(f"bad Host {number}", request(host=b"Host: " + of)) for number, of in enumerate(BAD_HOSTS, 1)],
    served("Host empty", request(host=b"Host:")),
    served("Host of somebody else", request(host=b"Host: evil.test:1")),
    served("Host with an address", request(host=b"Host: [::1]:80")),
    Case(
        "no Host in HTTP/1.0",
        request(host=b"", first=b"POST /v1/completions HTTP/1.0"),
        ("200",),
        "closed",
        1,
    ),
    *[invalid(f"bad line {number}", request(BODY, of)) for number, of in enumerate(BAD_LINES, 1)],
    served("bytes above ASCII in a value", request(BODY, b"X-A: \xff\xe9")),
    served("no value", request(BODY, b"X-A:")),
    served("a header 5000 times", request(BODY, *[b"x-a: 1"] * 5000), shown="`x-a: 1` 5000 times"),
    served(
        "9000 headers, one of them twice",
        request(BODY, *[b"%x:" % number for number in range(9000)], b"1f:"),
        shown="`0:`, `1:`, ... `2327:`, `1f:`",
    ),
    served("a head of 60 kB", request(BODY, b"X-A: " + b"x" * 60_000), shown="`X-A: xxx...` of 60 kB"),
    Case(
        "a head of 66 kB",
        request(BODY, b"X-A: " + b"x" * 66_000),
        (TOO_LARGE,),
        "closed",
        shown="`X-A: xxx...` of 66 kB",
    ),
    Case(
        "a head of 1 MB",
        request(BODY, b"X-A: " + b"x" * 1_000_000),
        (TOO_LARGE,),
        "closed",
        shown="`X-A: xxx...` of 1 MB",
    ),
    Case(
        "a head without end",
        request(BODY, b"X-A: " + b"x" * 300_000)[:-400],
        (TOO_LARGE,),
        "closed",
        shown="`X-A: xxx...` of 300 kB, and no end",
    ),
]

SCHEMES = {
    "empty": b"",
    "scheme alone": b"Bearer",
    "scheme and a blank": b"Bearer ",
    "unknown key": b"Bearer sk-no",
    "key alone": KEY.encode(),
    "Basic": b"Basic " + KEY.encode(),
    "one character more": b"Bearer " + KEY.encode() + b"x",
    "one character less": b"Bearer " + KEY.encode()[:-1],
    "two blanks": b"Bearer  " + KEY.encode(),
    "a tab": b"Bearer\t" + KEY.encode(),
    "in quotes": b'Bearer "%b"' % KEY.encode(),
    "escaped": b"Bearer %73" + KEY.encode()[1:],
    "above ASCII": b"Bearer \xff\xfe",
    "60 kB": b"Bearer " + b"x" * 60_000,
}
AUTHORIZATION = b"Authorization: Bearer " + KEY.encode()


def shown(value: bytes) -> str:
    text = repr(value[:40].replace(KEY.encode(), b"(the key)"))[2:-1]
    return f"`Authorization: {text}`" + (" ..." if len(value) > 60 else "")


KEYS = [
    *[
        refused(name, NO_KEY, request(BODY, b"Authorization: " + value, key=None), shown(value))
        for name, value in SCHEMES.items()
    ],
    refused("twice", NO_KEY, request(BODY, AUTHORIZATION), "the header twice"),
    refused("known and unknown", NO_KEY, request(BODY, b"Authorization: Bearer sk-no")),
    refused(
        "unknown and known",
        NO_KEY,
        request(BODY, b"Authorization: Bearer sk-no", AUTHORIZATION, key=None),
        "the same the other way round",
    ),
    *[
        refused(
            f"in {name}", NO_KEY, request(BODY, f"{name}: {KEY}".encode(), key=None), f"`{name}: (the key)`"
        )
        for name in (
            "X-API-Key",
            "Api-Key",
            "Proxy-Authorization",
            "X-Authorization",
            "Cookie",
            "X-Forwarded-User",
        )
    ],
    refused(
        "an underscore in its name",
        NO_KEY,
        request(BODY, AUTHORIZATION.replace(b"h", b"_", 1), key=None),
        "`Aut_orization: Bearer (the key)`",
    ),
    served(
        "scheme in capitals",
        request(BODY, b"AUTHORIZATION: BEARER " + KEY.encode(), key=None),
        shown="`AUTHORIZATION: BEARER (the key)`",
    ),
]

FORWARDED = (
    b"X-Forwarded-For: 127.0.0.1",
    b"X-Forwarded-Host: evil.test",
    b"X-Forwarded-Proto: https",
    b"X-Forwarded-Prefix: /admin",
    b"X-Original-URL: /admin/keys",
    b"X-Rewrite-URL: /admin/keys",
    b"Forwarded: for=127.0.0.1;host=evil.test",
    b"X-Real-IP: 127.0.0.1",
    b"X-Vllm-Priority: -9",
    b"X-data-parallel-rank: 1",
    b"X-Tenant: other",
    b"X-Priority: interactive",
    b"X-Worker-Url: http://evil.test",
    b"X-Session-ID: x",
    b"Cookie: a=b",
    b"OpenAI-Organization: other",
    b"OpenAI-Project: other",
    b"endpoint-load-metrics-format: TEXT",
    b"Accept-Encoding: gzip, br",
    b"TE: trailers",
    b"Connection: X-Request-Id, Authorization, close, keep-alive",
    b"Proxy-Connection: keep-alive",
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"tracestate: a=b",
    b"X-Request-Id: a\tb",
    b"X-Request-Id: " + b"x" * 10_000,
    b"X-Request-Id: a%0d%0aX-Evil: 1",
    b"X-Request-Id: <script>",
    b"X-Request-Id: \xff",
    b"X-Request-Id: a, b",
    b"Via: 1.1 evil.test",
    b"Range: bytes=0-1",
    b"If-None-Match: *",
    b"Referer: http://evil.test",
    b"Origin: http://evil.test",
    b"User-Agent: " + b"x" * 5000,
)
IDENTITY = [
    served(f"{line.partition(b':')[0].decode()} {number}", request(BODY, line))
    for number, line in enumerate(FORWARDED, 1)
    if not line.startswith(b"Connection")
]
