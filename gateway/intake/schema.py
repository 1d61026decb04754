"""Which fields of a body does the gateway read, and of which types?

Everything not named here is skipped, neither built nor judged: the worker knows it better. Types are
strict, because the worker's are not: it takes "8" and true for numbers, and what two programs read
differently can be used to mislead one of them.
"""

import re

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from gateway.errors import BadRequest
from gateway.intake import shape
from gateway.model import Endpoint

MOST_OPTIONS_BYTES = 4096
ABSENT = Raw(b"null")
"""A field not sent. A field sent as null is equal to it, as it is to the worker."""


class Place(Struct, gc=False):
    """Where a medium is: in the address itself (data:), or where the worker would fetch it."""

    url: str | None = None


class Part(Struct, gc=False):
    """One piece of a message: text, or a medium whose bytes are never looked at."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    thinking: str | None = None
    image_url: str | Place | None = None
    audio_url: str | Place | None = None
    video_url: str | Place | None = None
    prompt_embeds: Raw = ABSENT
    image_embeds: Raw = ABSENT
    audio_embeds: Raw = ABSENT


class Message(Struct, gc=False):
    role: str
    content: str | list[Part | str] | None = None
    name: str | None = None
    tool_calls: Raw = ABSENT
    tools: Raw = ABSENT
    reasoning: Raw = ABSENT
    reasoning_content: Raw = ABSENT


class Body(Struct, gc=False, kw_only=True):
    """What both endpoints read. Raw fields are only measured, refused or erased, whatever their value."""

    model: str
    stream: bool | None = None
    stream_options: Raw = ABSENT
    n: int | None = None
    max_tokens: int | None = None
    best_of: int | None = None
    use_beam_search: bool | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None

    priority: Raw = ABSENT
    request_id: Raw = ABSENT
    session_id: Raw = ABSENT
    kv_transfer_params: Raw = ABSENT
    ec_transfer_params: Raw = ABSENT
    vllm_xargs: Raw = ABSENT
    prompt_embeds: Raw = ABSENT
    mm_processor_kwargs: Raw = ABSENT
    media_io_kwargs: Raw = ABSENT

    response_format: Raw = ABSENT
    structured_outputs: Raw = ABSENT
    guided_json: Raw = ABSENT
    guided_regex: Raw = ABSENT
    guided_choice: Raw = ABSENT
    guided_grammar: Raw = ABSENT
    guided_decoding_backend: Raw = ABSENT
    guided_whitespace_pattern: Raw = ABSENT


class CompletionBody(Body, gc=False, kw_only=True):
    prompt: str | list[str | int | list[int]] | None = None
    echo: bool | None = None
    logprobs: int | None = None


class ChatBody(Body, gc=False, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Raw = ABSENT
    documents: Raw = ABSENT
    chat_template: Raw = ABSENT
    chat_template_kwargs: Raw = ABSENT


class TemplateArguments(Struct, gc=False):
    """What is read of `chat_template_kwargs`."""

    chat_template: Raw = ABSENT


_completion = Decoder(CompletionBody)
_chat = Decoder(ChatBody)
_template_arguments = Decoder(TemplateArguments)
_options = Decoder(dict[str, Raw])


def decode(body: bytes | bytearray, endpoint: Endpoint) -> ChatBody | CompletionBody:
    """Raises BadRequest that names the field, never its value."""
    shape.check_values(body)
    try:
        if not body.isascii():
            body.decode()  # what the decoder skips, it does not check
        return (_chat if endpoint is Endpoint.CHAT else _completion).decode(body)
    except UnicodeDecodeError as error:
        raise _not_json(body, f"byte {error.start} is not UTF-8") from None
    except ValidationError as error:
        raise _wrong_field(str(error)) from None
    except DecodeError as error:
        raise _not_json(body, str(error)) from None
    except RecursionError:
        raise BadRequest("The request body is nested too deeply.", code="invalid_json") from None


def decode_template_arguments(field: Raw) -> TemplateArguments:
    """Of a `chat_template_kwargs` that was sent. Raises BadRequest unless it is an object."""
    try:
        return _template_arguments.decode(field)
    except ValidationError:
        param = "chat_template_kwargs"
        message = f"Invalid type for '{param}': expected an object or null."
        raise BadRequest(message, param=param, code="invalid_type") from None


def decode_options(field: Raw) -> dict[str, Raw]:
    """Of a `stream_options` that was sent. Raises BadRequest unless it is an object, and no large one."""
    param = "stream_options"
    if len(bytes(field)) > MOST_OPTIONS_BYTES:
        raise BadRequest(f"'{param}' is larger than {MOST_OPTIONS_BYTES} bytes.", param=param)
    try:
        return _options.decode(field)
    except ValidationError:
        message = f"Invalid type for '{param}': expected an object or null."
        raise BadRequest(message, param=param, code="invalid_type") from None


def was_sent(field: Raw) -> bool:
    """Whether a field was sent with a value other than null."""
    return field is not ABSENT and field != ABSENT


_WRONG_TYPE = re.compile(r"Expected `(?P<allowed>[^`]+)`, got `(?P<sent>[^`]+)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_PATH = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_TYPE_NAMES = {
    "int": "an integer",
    "float": "a number with a fraction or exponent",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def _wrong_field(problem: str) -> BadRequest:
    found = _PATH.search(problem)
    path = found["path"] if found else ""
    if missing := _MISSING.match(problem):
        param = f"{path}.{missing['name']}" if path else missing["name"]
        return BadRequest(
            f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
        )
    if wrong := _WRONG_TYPE.match(problem):
        allowed = " or ".join(_TYPE_NAMES[name] for name in wrong["allowed"].split(" | "))
        subject = f"Invalid type for '{path}'" if path else "The request body has the wrong type"
        message = f"{subject}: expected {allowed}, got {_TYPE_NAMES[wrong['sent']]}."
        return BadRequest(message, param=path or None, code="invalid_type")
    return BadRequest(f"The number in '{path}' is out of range.", param=path, code="invalid_value")


def _not_json(body: bytes | bytearray, problem: str) -> BadRequest:
    if not body:
        problem = "it is empty"
    elif problem.startswith("Input data was truncated"):
        problem = "it ends too early, or a \\ud800 to \\udfff escape stands without its pair"
    else:
        problem = problem.removeprefix("JSON is malformed: ")
    message = f"The request body is not valid JSON: {problem}. Send one JSON object, encoded in UTF-8."
    return BadRequest(message, code="invalid_json")
