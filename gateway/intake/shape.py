"""Is a body of a shape that nobody chokes on: neither we, who stall everyone meanwhile, nor the worker?"""

from gateway.errors import BadRequest

MOST_VALUES = 1_000_000
"""More than the tokens of any context, sent as numbers; read within a tenth of a second or two."""
MANY_BYTES = 4 * 1024 * 1024  # of a body: what fewer hold is read fast enough, whatever it is
PIECE_BYTES = 65536  # in which a comma is looked for, far faster than commas are counted
MOST_LEVELS = 500
"""Far above any schema. A worker's compilers of grammars, written in C++, call themselves for each level, and
crash where Python would raise an error."""
MOST_BRACKETS = 400_000  # of a schema; they are paired off in no time

_ALL_BUT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_AS_ONE_KIND = bytes.maketrans(b"{}", b"[]")


def check_values(body: bytes | bytearray) -> None:
    """Raises BadRequest if there are too many of them, which is told by the commas between them."""
    if len(body) > MANY_BYTES and _commas(body) > MOST_VALUES:
        message = "The request body holds too many values. Send fewer in one request."
        raise BadRequest(message, code="invalid_json")


def check_levels(field: bytes, param: str) -> None:
    """Raises BadRequest if arrays and objects of a field are nested too deeply. It is JSON."""
    if field.count(b"[") + field.count(b"{") > MOST_LEVELS:
        brackets = _outside_strings(field).translate(_AS_ONE_KIND, _ALL_BUT_BRACKETS)
        if len(brackets) <= MOST_BRACKETS:
            for _ in range(MOST_LEVELS):
                brackets = brackets.replace(b"[]", b"")  # the innermost level
        if brackets:
            raise BadRequest(f"'{param}' is nested too deeply, or too large.", param=param)


def _commas(body: bytes | bytearray) -> int:
    count = 0
    for begin in range(0, len(body), PIECE_BYTES):
        end = begin + PIECE_BYTES
        if body.find(b",", begin, end) >= 0:  # not in images
            count += body.count(b",", begin, end)
    return count


def _outside_strings(text: bytes) -> bytes:
    return b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
