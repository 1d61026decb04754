"""How many tokens is a prompt, without a tokenizer?

Bytes of text, divided by what a token of the model has been in requests before. Token ids are counted.
"""

from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Raw

from gateway.errors import BadRequest
from gateway.intake.schema import ABSENT, ChatBody, CompletionBody, Part, was_sent
from gateway.model import Model

MESSAGE_TOKENS = 5  # a ChatML template's start, role, two line feeds and end
REPLY_TOKENS = 3  # and what it puts before the answer
MEDIUM_TOKENS = 576  # an image of 24 x 24 patches; sizes vary, but no image is a long prompt

FIRST_BYTES_PER_TOKEN = 4.0  # English in today's vocabularies
LEAST_BYTES_PER_TOKEN = 1.0
MOST_BYTES_PER_TOKEN = 8.0
ESTIMATE_SLACK = 1.25  # code and tables, beside the prose of the same model


_rendered_of_body = attrgetter("tools", "documents", "chat_template_kwargs")
_rendered_of_message = attrgetter("tool_calls", "tools", "reasoning", "reasoning_content")
_NONE_OF_BODY = (ABSENT,) * 3  # of nearly every body
_NONE_OF_MESSAGE = (ABSENT,) * 4  # and message


class Size(NamedTuple):
    tokens: list[int]  # of each prompt
    text_bytes: int  # text that alone explains the tokens; 0 where something else has a part in them


class Averages:
    """Bytes per token of each model, from its latest requests.

    A request counts by its bytes, as the template outweighs the text of a short prompt; up to a bound, so
    that one long prompt is only one voice.
    """

    _FULL_WEIGHT_BYTES = 4096
    _MEMORY = 50  # prompts of full weight

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}  # model → bytes, tokens

    def bytes_per_token(self, model: str) -> float:
        known = self._sums.get(model)
        return known[0] / known[1] if known else FIRST_BYTES_PER_TOKEN

    def learn(self, model: str, text_bytes: int, tokens: int) -> None:
        """`tokens` of the worker's usage for `text_bytes`. A request without text weighs nothing."""
        if tokens <= 0:
            return
        full = self._FULL_WEIGHT_BYTES
        all_bytes, all_tokens = self._sums.get(model, (full, full / FIRST_BYTES_PER_TOKEN))
        weight_bytes = min(text_bytes, full)
        kept = 1 - weight_bytes / full / self._MEMORY
        ratio = min(max(text_bytes / tokens, LEAST_BYTES_PER_TOKEN), MOST_BYTES_PER_TOKEN)
        self._sums[model] = (
            all_bytes * kept + weight_bytes,
            all_tokens * kept + weight_bytes / ratio,
        )


def measure(body: ChatBody | CompletionBody, model: Model, bytes_per_token: float) -> Size:
    """Raises BadRequest where token ids are more than the model can take."""
    size = _chat(body, bytes_per_token) if isinstance(body, ChatBody) else _completion(body, bytes_per_token)
    cut = body.truncate_prompt_tokens
    if cut is not None:
        most = cut if cut >= 0 else model.max_model_len
        return size if most is None else Size([min(tokens, most) for tokens in size.tokens], 0)
    counted = size.text_bytes == 0 and isinstance(body, CompletionBody)
    if counted and model.max_model_len is not None and max(size.tokens) > model.max_model_len:
        message = (
            f"This model's maximum context length is {model.max_model_len} tokens, but a prompt has "
            f"{max(size.tokens)}. Shorten it."
        )
        raise BadRequest(message, param="prompt", code="context_length_exceeded")
    return size


def safe_length(size: Size) -> int:
    """What the longest prompt may well be: where bytes stand for tokens, some have more than most."""
    tokens = max(size.tokens)
    return ceil(tokens * ESTIMATE_SLACK) if size.text_bytes else tokens


def _completion(body: CompletionBody, bytes_per_token: float) -> Size:
    prompt: Any = body.prompt
    if isinstance(prompt, str):
        prompt = [prompt]
    if isinstance(prompt[0], int):
        return Size([len(prompt)], 0)
    if isinstance(prompt[0], list):
        return Size([len(ids) for ids in prompt], 0)
    lengths = [_utf8(text) for text in prompt]
    return Size([ceil(length / bytes_per_token) for length in lengths], sum(lengths))


def _chat(body: ChatBody, bytes_per_token: float) -> Size:
    text = media = 0
    if (of_body := _rendered_of_body(body)) != _NONE_OF_BODY:
        text = _json(of_body)
    for message in body.messages:
        content = message.content
        if isinstance(content, str):
            text += len(content) if content.isascii() else len(content.encode())
        elif content is not None:
            part_bytes, part_media = _parts(content)
            text += part_bytes
            media += part_media
        if message.name is not None:
            text += _utf8(message.name)
        if (rendered := _rendered_of_message(message)) != _NONE_OF_MESSAGE:
            text += _json(rendered)
    template = MESSAGE_TOKENS * len(body.messages) + REPLY_TOKENS
    tokens = ceil(text / bytes_per_token) + template + media * MEDIUM_TOKENS
    return Size([tokens], 0 if media else text)


def _parts(parts: list[Part | str]) -> tuple[int, int]:
    """Bytes of text, and how many parts have none and so are media."""
    text = media = 0
    for part in parts:
        if isinstance(part, str):
            text += _utf8(part)
            continue
        texts = [piece for piece in (part.text, part.refusal, part.thinking) if piece is not None]
        text += sum(map(_utf8, texts))
        media += not texts
    return text, media


def _json(fields: tuple[Raw, ...]) -> int:
    """Bytes of values that a template renders as JSON, as they were written."""
    return sum(memoryview(field).nbytes for field in fields if was_sent(field))


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
