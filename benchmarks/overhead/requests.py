"""What is asked in every phase, and how does it go over the wire?"""

import json
from urllib.parse import urlsplit

MODEL = "measured"
PATH = "/v1/chat/completions"
BODY_BYTES = 400  # about what a short chat has
PLAIN_TOKENS = 8
STREAM_TOKENS = 64
SENTENCES = (
    "The tide comes in twice a day here, and each time the harbour fills a little later than before. "
    "Whoever wants to cross the flats has to know when to turn back, and most people ask the pilot. "
    "Explain to a visitor in two sentences why the hour moves, and name the one rule that keeps them dry, "
    "whatever the weather."
)


def body(tokens: int, *, stream: bool) -> bytes:
    """Of a chat request for so many tokens, BODY_BYTES long."""

    def asking(content: str) -> bytes:
        messages = [{"role": "user", "content": content}]
        asked = {"model": MODEL, "messages": messages, "max_tokens": tokens, "temperature": 0}
        return json.dumps(asked | ({"stream": True} if stream else {})).encode()

    return asking(SENTENCES[: BODY_BYTES - len(asking(""))])


def headers(key: str) -> dict[str, str]:
    """That come with each."""
    return {"content-type": "application/json", "authorization": f"Bearer {key}"}


def wired(url: str, key: str, content: bytes) -> bytes:
    """A whole POST as it is sent. url: of whom it is for, without a path."""
    lines = [f"POST {PATH} HTTP/1.1", f"host: {urlsplit(url).netloc}", f"content-length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers(key).items()]
    return "\r\n".join([*lines, "", ""]).encode() + content
