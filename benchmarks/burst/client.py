"""How is a burst fired? Plan and prompts → one record a request, through the official SDK."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import openai
from openai.types import Completion, CompletionChoice, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam
from openai.types.chat.chat_completion_chunk import Choice as ChatChoice

from benchmarks.burst.records import Failure, Plan, Record

Clock = Callable[[], float]
Stream = openai.AsyncStream[ChatCompletionChunk] | openai.AsyncStream[Completion]
Parsed = TypeVar("Parsed")
Parsed_co = TypeVar("Parsed_co", covariant=True)

RETRY_COUNT_HEADER = "x-stainless-retry-count"  # by which the SDK tells a server that it tries again


class Unreadable(Exception):
    """A good status, but not what was asked for. The text says what came."""


class RawResponse(Protocol[Parsed_co]):
    """What `with_raw_response` gives: the head of the response beside its content."""

    retries_taken: int

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def request_id(self) -> str | None: ...
    def parse(self) -> Parsed_co: ...


def open_client(plan: Plan, api_key: str) -> openai.AsyncOpenAI:
    """The client people use. The caller closes it.

    Connecting may take as long as all else, where the SDK alone would allow 5 s: a thousand connections
    opened at once can keep a small machine busy for longer, and that is not the server's failure.
    """
    return openai.AsyncOpenAI(
        api_key=api_key,
        base_url=plan.base_url,
        max_retries=plan.max_retries,
        timeout=plan.timeout_s,
    )


async def fire(
    client: openai.AsyncOpenAI,
    plan: Plan,
    prompts: Sequence[str],
    on_done: Callable[[Record], None],
    clock: Clock = time.perf_counter,
) -> list[Record]:
    """Send one request a prompt, `plan.concurrency` of them at once, and wait for all.

    A failed request is a record too; it raises nothing. `on_done` is called as each one ends.
    """
    began = clock()
    places = asyncio.Semaphore(plan.concurrency)

    async def one(index: int, prompt: str) -> Record:
        async with places:
            record = await _Attempt(client, plan, lambda: clock() - began).run(index, prompt)
        on_done(record)
        return record

    return await asyncio.gather(*(one(index, prompt) for index, prompt in enumerate(prompts)))


class _Attempt:
    """One request, and what has been seen of its answer so far."""

    def __init__(self, client: openai.AsyncOpenAI, plan: Plan, elapsed_s: Clock) -> None:
        self.client = client
        self.plan = plan
        self.elapsed_s = elapsed_s
        self.status: int | None = None
        self.request_id: str | None = None
        self.retries = 0
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.usage: CompletionUsage | None = None
        self.is_finished = False  # a finish_reason came

    async def run(self, index: int, prompt: str) -> Record:
        started_s = self.elapsed_s()
        failure = await self._failure(prompt)
        return Record(
            index=index,
            started_s=started_s,
            ended_s=self.elapsed_s(),
            first_token_s=self.first_token_s,
            last_token_s=self.last_token_s,
            prompt_tokens=self.usage.prompt_tokens if self.usage else None,
            output_tokens=self.usage.completion_tokens if self.usage else None,
            request_id=self.request_id,
            retries=self.retries,
            failure=failure,
        )

    async def _failure(self, prompt: str) -> Failure | None:
        """Read the whole answer; what kept it from being whole, if anything did."""
        try:
            await (self._read_stream(prompt) if self.plan.stream else self._read_plain(prompt))
        except openai.APIStatusError as error:
            self.status, self.request_id = error.status_code, error.request_id
            self._count_retries(error)
            return _described(error, self.status)
        except openai.APIError as error:
            self._count_retries(error)
            return _described(error, self.status)
        except (Unreadable, json.JSONDecodeError) as error:
            return Failure(self.status, "unreadable", str(error))
        if not self.is_finished:
            return Failure(self.status, "cut_off", "the answer ended without a finish_reason")
        return None

    async def _read_plain(self, prompt: str) -> None:
        answer = await self._ask_plain(prompt)
        self.usage = answer.usage
        self.is_finished = any(choice.finish_reason for choice in answer.choices or ())

    async def _read_stream(self, prompt: str) -> None:
        async with await self._ask_streamed(prompt) as stream:
            async for chunk in stream:
                self.usage = chunk.usage or self.usage
                for choice in chunk.choices or ():
                    self._see(choice)

    def _see(self, choice: ChatChoice | CompletionChoice) -> None:
        self.is_finished = self.is_finished or bool(choice.finish_reason)
        if carries_output(choice):
            self.last_token_s = self.elapsed_s()
            if self.first_token_s is None:
                self.first_token_s = self.last_token_s

    async def _ask_plain(self, prompt: str) -> ChatCompletion | Completion:
        model, max_tokens = self.plan.model, self.plan.max_tokens
        if self.plan.endpoint == "chat":
            chat = self.client.chat.completions.with_raw_response
            return self._opened(
                await chat.create(model=model, messages=_messages(prompt), max_tokens=max_tokens)
            )
        text = self.client.completions.with_raw_response
        return self._opened(await text.create(model=model, prompt=prompt, max_tokens=max_tokens))

    async def _ask_streamed(self, prompt: str) -> Stream:
        model, max_tokens = self.plan.model, self.plan.max_tokens
        if self.plan.endpoint == "chat":
            chat = self.client.chat.completions.with_raw_response
            return self._opened(
                await chat.create(
                    model=model,
                    messages=_messages(prompt),
                    max_tokens=max_tokens,
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
        text = self.client.completions.with_raw_response
        return self._opened(
            await text.create(
                model=model,
                prompt=prompt,
                max_tokens=max_tokens,
                stream=True,
                stream_options={"include_usage": True},
            )
        )

    def _opened(self, response: RawResponse[Parsed]) -> Parsed:
        """The content of a good response, once its head is noted. Raises Unreadable for another type."""
        self.status, self.request_id = response.status_code, response.request_id
        self.retries = response.retries_taken
        content_type = response.headers.get("content-type", "none")
        if not content_type.startswith("text/event-stream" if self.plan.stream else "application/json"):
            raise Unreadable(f"content-type {content_type}: is the base URL right?")
        return response.parse()

    def _count_retries(self, error: openai.APIError) -> None:
        self.retries = int(error.request.headers.get(RETRY_COUNT_HEADER, 0))


def carries_output(choice: ChatChoice | CompletionChoice) -> bool:
    """Whether the model made this event: all but the one that opens a chat, which only names the role.

    The last one counts even without text, since the token that ends an answer has none.
    """
    if isinstance(choice, CompletionChoice):
        return bool(choice.text or choice.finish_reason)
    delta = choice.delta
    beyond_openai = (delta.model_extra or {}).values()  # such as vLLM's `reasoning`
    written = delta.content or delta.refusal or delta.tool_calls or any(beyond_openai)
    return bool(written or choice.finish_reason)


def _described(error: openai.APIError, status: int | None) -> Failure:
    if isinstance(error, openai.APITimeoutError):
        return Failure(status, "timeout", error.message)
    if isinstance(error, openai.APIConnectionError):
        return Failure(status, "connection_error", f"{error.message} {error.__cause__ or ''}".strip())
    return Failure(status, error.code or error.type or "no_code", error.message)


def _messages(prompt: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": prompt}]
