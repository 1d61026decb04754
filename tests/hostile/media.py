"""Does an address in a message have a worker fetch what its sender could not?"""

from tests.hostile.cases import Case, refused, served, spoken

FILE = "file:" + "/" * 3
ADDRESSES = (
    "http://evil.test/a.png",
    "https://169.254.169.254/latest/meta-data",
    "HTTP://127.0.0.1:8101/v1/models",
    "hTtPs://[::1]/",
    "http://evil.test\\@127.0.0.1/",
    "http://user:pass@127.0.0.1/",
    " http://evil.test/",
    "\thttp://evil.test/",
    "\nhttp://evil.test/",
    "http:\\\\evil.test\\",
    "http:/evil.test/",
    "//evil.test/a.png",
    "\\\\evil.test\\a.png",
    FILE + "etc/passwd",
    FILE.upper() + "etc/passwd",
    "file:/etc/passwd",
    "/etc/passwd",
    "../../etc/passwd",
    "ftp://evil.test/a.png",
    "gopher://evil.test/",
    "s3://evil/a.png",
    "jar:http://evil.test/a!/b",
    "javascript:alert(1)",
    "blob:http://evil.test/a",
    "ht\ntp://evil.test/",
    "\u0000data:,",
    " data:image/png;base64,AAAA",
    "x-data:,",
    "",
)
DATA = "data:image/png;base64,AAAA"
WEB = ADDRESSES[0]
NOT_ALLOWED = "400 media_url_not_allowed"
EMBEDDED = "400 unsupported_parameter"


def image(place: object) -> bytes:
    return spoken({"type": "image_url", "image_url": place})


def shown(url: str) -> str:
    """No table is to hold what looks like a file of this machine."""
    return (
        f"`{url!r}`".replace(FILE, "file:` `///").replace(FILE.upper(), "FILE:` `///")
        if url
        else "an empty one"
    )


def addresses(*urls: str) -> list[Case]:
    """Refused ones, of images."""
    return [
        refused(f"address {number}", NOT_ALLOWED, image({"url": url}), shown(url))
        for number, url in enumerate(urls, 1)
    ]


MEDIA = [
    *addresses(*ADDRESSES),
    served("an image inside", image({"url": DATA})),
    served("an image inside, in capitals", image({"url": "DATA:image/png;base64,AAAA"})),
    refused("image as text", NOT_ALLOWED, image(WEB)),
    refused("image with a detail", NOT_ALLOWED, image({"url": WEB, "detail": "low"})),
    refused("image as input_image", NOT_ALLOWED, spoken({"type": "input_image", "image_url": WEB})),
    refused(
        "image in a part of another type",
        NOT_ALLOWED,
        spoken({"type": "text", "text": "a", "image_url": WEB}),
    ),
    refused("image in a part of no type", NOT_ALLOWED, spoken({"image_url": {"url": WEB}})),
    refused(
        "image in a part with a uuid",
        NOT_ALLOWED,
        spoken({"type": "image_url", "image_url": WEB, "uuid": "1"}),
    ),
    refused("image in the last part", NOT_ALLOWED, spoken("a", {"image_url": DATA}, {"image_url": WEB})),
    refused("audio", NOT_ALLOWED, spoken({"type": "audio_url", "audio_url": {"url": WEB}})),
    refused("video", NOT_ALLOWED, spoken({"type": "video_url", "video_url": {"url": WEB}})),
    served("audio inside", spoken({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})),
    served("a part of an unknown type", spoken({"type": "x", "x": WEB})),
    served("an address in a text", spoken({"type": "text", "text": WEB})),
    refused("embeddings of an image", EMBEDDED, spoken({"type": "image_embeds", "image_embeds": "AAAA"})),
    refused("embeddings of a prompt", EMBEDDED, spoken({"type": "prompt_embeds", "data": "AAAA"})),
    refused(
        "a template of one's own",
        "400 unsupported_parameter",
        spoken("a", chat_template_kwargs={"chat_template": "{{ 1 }}"}),
    ),
    served("a template of one's own, elsewhere", spoken("a", chat_template="{{ 1 }}"), chat_template=None),
    served(
        "what a worker's readers are told",
        spoken("a", media_io_kwargs={"video": {"num_frames": 99}}),
        media_io_kwargs=None,
    ),
]
# Where a tenant may name addresses of the web, those that two readers could take for different hosts.
ALLOWED = [
    served("an image in the web", image({"url": WEB})),
    *addresses(
        "http://evil.test\\@127.0.0.1/",
        "http://127.0.0.1\t.test/",
        "https://a test/",
        " http://a.test/",
        FILE + "etc/passwd",
        "//evil.test/",
        "http:/evil.test/",
        "ftp://evil.test/",
        "",
    ),
]
