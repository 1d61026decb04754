"""Which addresses of media pass, in every form in which vLLM reads them, and which never do."""

import json
from typing import Any

import pytest

from gateway.errors import BadRequest
from gateway.model import Endpoint
from tests.gateway.intake.samples import chat, completion, read, read_chat, sent

FIELDS = ("image_url", "audio_url", "video_url")
DATA = "data:image/png;base64,QUJD"
WEB = "https://images.test/a.png"
FETCHED = ["http://images.test/a.png", WEB, "HTTPS://images.test/a.png", "hTtP://images.test/a.png"]
NEVER_FETCHED = [
    "file://localhost/etc/passwd",
    "FILE:///etc/passwd",
    "file:/etc/passwd",
    "/etc/passwd",
    "etc/passwd",
    "//images.test/a.png",
    "\\\\images.test\\a.png",
    "http:images.test/a.png",
    "http:/images.test/a.png",
    "http:\\\\images.test/a.png",
    "https:\\/images.test/a.png",
    " https://images.test/a.png",
    "\thttps://images.test/a.png",
    "\x00https://images.test/a.png",
    "\x1fhttps://images.test/a.png",
    "\ufeffhttps://images.test/a.png",
    "ht\ntps://images.test/a.png",
    "http://images.test\\@127.0.0.1/a.png",
    "https://images.test\\.127.0.0.1/",
    "https://images.test /a.png",
    "https://images.test/a.png\n",
    "https://127.0.0.1\t.images.test/",
    "httpx://images.test/a.png",
    "ftp://images.test/a.png",
    "gopher://images.test/",
    "s3://images/a.png",
    "blob:https://images.test/a",
    "javascript:alert(1)",
    "QUJD",
    "",
    "data",
    "data ",
    " data:image/png;base64,QUJD",
    "\ndata:image/png;base64,QUJD",
    "dat\x00a:image/png;base64,QUJD",
    "\uff44ata:image/png;base64,QUJD",
    "x-data:image/png;base64,QUJD",
    "url=data:image/png;base64,QUJD",
]


def of(*parts: Any) -> bytes:
    """A chat whose second message has these parts."""
    return chat(messages=[{"role": "user", "content": "Hi"}, {"role": "user", "content": list(parts)}])


def refusal(body: bytes, **permissions: bool) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read(body, tenant=permissions)
    return caught.value


def forms(field: str, url: str) -> list[dict[str, Any]]:
    """All that vLLM takes for a medium at an address: its type given, or guessed, or beside a uuid."""
    return [
        {"type": field, field: {"url": url}},
        {"type": field, field: {"url": url, "detail": "low"}},
        {"type": field, field: url},
        {field: url},
        {field: {"url": url}},
        {"type": "text", "text": "Look:", "uuid": "1", field: url},
        {"type": "input_image", field: url},
    ]


@pytest.mark.parametrize("url", FETCHED + NEVER_FETCHED)
@pytest.mark.parametrize("field", FIELDS)
def test_an_address_is_refused_by_the_path_of_its_part_in_every_form(field: str, url: str) -> None:
    for part in forms(field, url):
        error = refusal(of("Look:", part))
        assert (error.status, error.code) == (400, "media_url_not_allowed")
        assert error.param == f"messages[1].content[1].{field}"
        assert error.message.startswith(f"'{error.param}' must begin with data:")
        assert "Whoever runs this gateway can allow http(s) addresses" in error.message


@pytest.mark.parametrize("url", [DATA, "DATA:image/png;base64,QUJD", "Data:,", "data:"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_medium_that_lies_in_the_request_passes_in_every_form(field: str, url: str) -> None:
    for part in forms(field, url):
        body = of("Look:", part)
        for permissions in ({}, {"allow_media_urls": True}):
            assert json.loads(sent(read(body, tenant=permissions)))["messages"][1]["content"][1] == part


@pytest.mark.parametrize("url", FETCHED)
@pytest.mark.parametrize("field", FIELDS)
def test_an_address_in_the_web_passes_where_it_is_allowed(field: str, url: str) -> None:
    for part in forms(field, url):
        read(of(part), tenant={"allow_media_urls": True})


@pytest.mark.parametrize("url", NEVER_FETCHED)
@pytest.mark.parametrize("field", FIELDS)
def test_other_addresses_are_refused_even_where_those_in_the_web_are_allowed(field: str, url: str) -> None:
    for part in forms(field, url):
        error = refusal(of(part), allow_media_urls=True)
        assert (error.param, error.code) == (f"messages[1].content[0].{field}", "media_url_not_allowed")
        assert error.message.startswith(f"'{error.param}' must begin with data:, http:// or https://,")


def test_the_last_of_several_parts_is_checked_like_the_first() -> None:
    places = [{"image_url": DATA, "video_url": {"url": DATA}}, {"audio_url": DATA}, {"audio_url": WEB}]
    assert refusal(of(*places)).param == "messages[1].content[2].audio_url"
    assert refusal(of({"image_url": DATA, "video_url": WEB})).param == "messages[1].content[0].video_url"


def test_the_address_that_counts_is_the_last_of_its_name_however_it_is_written() -> None:
    start = b'{"model":"small","messages":[{"role":"user","content":[{'
    end = b"}]}]}"
    data, web = json.dumps(DATA).encode(), json.dumps(WEB).encode()
    read(start + b'"image_url":' + web + b',"image_url":{"url":' + web + b',"url":' + data + b"}" + end)
    for bad in (
        b'"image_url":' + data + b',"image_url":' + web,
        b'"image_url":{"url":' + data + b',"url":' + web + b"}",
        b'"image\\u005furl":' + web,
        b'"image_url":{"\\u0075rl":' + web + b"}",
        b'"image_url":"\\u0068ttps:\\/\\/images.test"',
    ):
        assert refusal(start + bad + end).code == "media_url_not_allowed"
    read(start + b'"image_url":"\\u0064ata:,"' + end)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
        {"type": "image_url", "image_url": None, "uuid": "1"},
        {"type": "image_url", "image_url": {"url": None}, "uuid": "1"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": WEB},
        {"type": "text", "text": "Hi", "image_embeds": None},
        WEB,
    ],
)
def test_a_part_without_an_address_passes(part: Any) -> None:
    read(of(part))


def test_addresses_elsewhere_are_text() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"image_url": {"url": WEB}}}}
    read(chat(messages=[{"role": "user", "content": WEB}], tools=[tool], metadata={"image_url": WEB}))
    read(completion(prompt=WEB), Endpoint.COMPLETIONS)


def test_a_refusal_does_not_repeat_the_address() -> None:
    for permissions in ({}, {"allow_media_urls": True}):
        error = refusal(of({"image_url": "ftp://user:secret@host/"}), **permissions)
        assert "secret" not in error.message + str(error.param)


@pytest.mark.parametrize("kind", ["prompt_embeds", "image_embeds", "audio_embeds"])
@pytest.mark.parametrize("beside", [{}, {"type": "text", "text": "Hi", "uuid": "1"}, {"image_url": DATA}])
def test_embeddings_are_refused_by_their_type_and_by_their_field(kind: str, beside: dict[str, Any]) -> None:
    for part in ({"type": kind, "data": "QUJD"}, {**beside, kind: "QUJD"}, {**beside, kind: {"a": "QUJD"}}):
        error = refusal(of("Hi", part), allow_media_urls=True)
        assert (error.param, error.code) == ("messages[1].content[1]", "unsupported_parameter")
        assert "'messages[1].content[1]' is not supported. Send text or a medium" in error.message


@pytest.mark.parametrize("wrong", [7, [], True, {"url": 7}, {"url": []}])
def test_an_address_of_a_wrong_type_is_refused(wrong: object) -> None:
    with pytest.raises(BadRequest) as caught:
        read_chat(messages=[{"role": "user", "content": [{"image_url": wrong}]}])
    assert caught.value.code == "invalid_type"
    assert str(caught.value.param).startswith("messages[0].content[0].image_url")
