"""What may a part of a message hold beside text: bytes that lie in the request, or what a worker would fetch?

A worker fetches from inside the operator's network and reads its own disk, so whose addresses it follows
matters. A part's `type` does not: of a part with a `uuid`, vLLM goes by the fields.
"""

import re
from operator import attrgetter
from typing import Any

from gateway.errors import BadRequest
from gateway.intake.refusals import unsupported
from gateway.intake.schema import ABSENT, Part, Place, was_sent

_PLACES = ("image_url", "audio_url", "video_url")
_EMBEDDINGS = ("prompt_embeds", "image_embeds", "audio_embeds")  # each a type of parts, and a field
_beside_text = attrgetter(*_PLACES, *_EMBEDDINGS)
_ONLY_TEXT = (None,) * len(_PLACES) + (ABSENT,) * len(_EMBEDDINGS)

_DATA = "data:"
_WEB = ("http://", "https://")
_LONGEST_BEGINNING = len("https://")
# Where one reader lets a host end, another does not: http://a\@b is of a to some, of b to others.
_read_in_two_ways = re.compile(r"[\x00-\x20\x7f\\]").search


def check(parts: list[Part | str], path: str, allow_urls: bool) -> None:
    """Raises BadRequest for embeddings, and for an address that begins neither with data: nor, with
    `allow_urls`, with http:// or https://. path: of the parts, for the refusal."""
    for index, part in enumerate(parts):
        if isinstance(part, str):
            continue
        if part.type in _EMBEDDINGS:
            raise _embeddings(f"{path}[{index}]")
        if (sent := _beside_text(part)) != _ONLY_TEXT:
            _check_beside_text(sent, f"{path}[{index}]", allow_urls)


def _check_beside_text(sent: tuple[Any, ...], path: str, allow_urls: bool) -> None:
    places, embeddings = sent[: len(_PLACES)], sent[len(_PLACES) :]
    if any(map(was_sent, embeddings)):
        raise _embeddings(path)
    for name, place in zip(_PLACES, places, strict=True):
        url = place.url if isinstance(place, Place) else place
        if url is not None and not _may_follow(url, allow_urls):
            raise _address(f"{path}.{name}", allow_urls)


def _may_follow(url: str, allow_urls: bool) -> bool:
    """Nothing is stripped or decoded first: an odd address, which readers may take for different things, is
    refused."""
    beginning = url[:_LONGEST_BEGINNING].lower()
    if beginning.startswith(_DATA):
        return True
    return allow_urls and beginning.startswith(_WEB) and _read_in_two_ways(url) is None


def _embeddings(path: str) -> BadRequest:
    return unsupported(path, "Send text or a medium: tensors of a wrong shape end the worker for everyone.")


def _address(param: str, allow_urls: bool) -> BadRequest:
    if allow_urls:
        message = f"'{param}' must begin with data:, http:// or https://, and hold no blank and no backslash."
    else:
        message = (
            f"'{param}' must begin with data: and hold the medium itself. Whoever runs this gateway can "
            "allow http(s) addresses to your tenant ('allow_media_urls')."
        )
    return BadRequest(message, param=param, code="media_url_not_allowed")
