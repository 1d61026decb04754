"""The values that pass from room to room. Nothing here does anything.

Those that are made for each request are msgspec structs: as plain as dataclasses, at a tenth of the cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

from msgspec import Struct

from gateway.tally import Tally

Headers = Sequence[tuple[bytes, bytes]]  # names in lower case
Fields = Mapping[bytes, bytes]  # the same by name


class Endpoint(StrEnum):
    """The two calls that reach a worker; the value is the metric label."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        return "/v1/completions" if self is Endpoint.COMPLETIONS else "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who is charged. A limit of None is no limit."""

    id: str
    models: frozenset[str] = frozenset({"*"})  # names or aliases; "*" is every model
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_day: int | None = None
    max_concurrency: int | None = None
    max_output_tokens: int | None = None  # of one answer; the model's limit holds besides
    weight: float = 1.0
    priority: str = "default"
    allow_logprobs: bool | None = None  # None: what [intake] says; so for the next two
    allow_chat_template: bool | None = None
    allow_media_urls: bool | None = None
    cache_group: str = ""  # tenants of one group share prefix caches; "" is shared with nobody


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: a tenant, by one of its keys. Neither field tells the secret."""

    tenant: Tenant
    key_id: str
    cache_salt: str  # keeps the prefix caches of tenants apart; 64 hex digits


class Grant(Struct, frozen=True):
    """What a secret is good for. Times are seconds since 1970."""

    tenant: Tenant
    key_id: str
    expires_at: float | None = None


class Incoming(Struct, frozen=True):
    """A request whose head has been read."""

    id: str
    endpoint: Endpoint
    fields: Fields


@dataclass(frozen=True, slots=True)
class Model:
    """A model as the configuration and the workers describe it. Lengths in tokens."""

    name: str  # what workers call it
    max_model_len: int | None = None
    default_max_tokens: int | None = None
    max_output_tokens: int | None = None


class Chain(Struct, frozen=True):
    """A prompt, by which a worker's prefix cache is guessed.

    hashes: one for each whole step of the prompt, each of all up to there, the one of the whole first.
    """

    hashes: list[int]
    prompt_bytes: int
    prompt_tokens: int


class Job(Struct, frozen=True):
    """A request that has been read: what it asks for, how large it is, and the bytes for the worker."""

    id: str
    endpoint: Endpoint
    caller: Caller
    model: str  # what workers call it
    stream: bool
    wants_usage: bool  # the caller asked for the usage event of a stream
    prompt_tokens: int  # over all prompts; an estimate unless the caller sent token ids
    prompt_bytes: int  # text behind the estimate, so that usage can correct it; 0 for token ids
    max_output_tokens: int  # over all sequences: n x prompts x max_tokens
    max_tokens_given: bool  # the caller named a maximum
    expected_output_tokens: int  # as far as earlier answers tell; over all sequences
    sequences: int  # n x prompts
    bucket: int  # index of the length bucket, 0 the shortest
    is_long: bool  # its prompt keeps a worker busy for a while
    body: tuple[bytes | memoryview, ...]  # the caller's bytes with members appended, in order
    max_wait_s: float = inf  # for a worker, that the caller has time for
    context_tokens: int = 0  # that its longest sequence needs of a worker; rather too many than too few
    chain: Chain | None = None  # None: too short to be found again, or nobody looks

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.max_output_tokens


class Worker(Struct, frozen=True):
    """A worker at one moment, as a policy sees it. Seconds are those that the worker itself takes.

    All but in_flight and limit is of all processes that share it. Prefill tokens are weighed for what
    attention costs (estimates.prefill_cost).
    """

    id: str
    in_flight: int  # of this process
    limit: int  # how many of this process it may hold at once
    prefilling: int = 0  # of its requests: those without a first token
    long_prefills: int = 0  # of those: long prompts
    takes_long: bool = True  # whether it may read one more of those now
    prefill_tokens: int = 0  # of those without a first token
    prefill_s: float = 0.0  # until all those could have one
    decode_s: float = 0.0  # by which the tokens expected of all its requests lengthen its steps, in sum
    own_s: float = 0.0  # that this request's prompt would take, less what is in the prefix cache


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker as it is to be, whoever said so."""

    id: str
    url: str
    model: str  # the name of a configured one
    max_concurrency: int = 256
    api_key_env: str = ""  # the environment variable that holds its key
    address: str = ""  # where to connect to, if not where the URL's host name leads


class Usage(Struct, frozen=True):
    """Tokens of one finished request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Quota(Struct, frozen=True):
    """One limit after a request was counted, for the x-ratelimit headers."""

    limit: int
    remaining: int
    reset_s: float  # until it is full again


class Quotas(Struct, frozen=True):
    """The limits that a response's headers tell of; None where the tenant has no such limit."""

    requests: Quota | None = None
    tokens: Quota | None = None
    degraded: str = ""  # what holds while the limits' store is away: "local", "open" or "closed"


class Verdict(Struct, frozen=True):
    """A store's answer. `refused` is "" (granted), "requests", "tokens" or "concurrency"."""

    quotas: Quotas
    refused: str = ""
    retry_after_s: float = 0.0  # when the same would be granted
    limit: int = 0  # the one that refused
    period_s: float = 60.0  # in which that limit is counted: a minute or a day


class Progress(Protocol):
    """How far a stream has come."""

    events: int  # that have gone on to its caller
    may_be_inside: bool  # what has gone on may end inside an event


class Trip(Struct):
    """What is known of one request so far; what is counted and logged when it ends. Times are the loop's."""

    id: str
    endpoint: Endpoint
    began: float
    caller: Caller | None = None
    job: Job | None = None
    quotas: Quotas | None = None
    worker: str = ""
    tried: tuple[str, ...] = ()  # workers that could not have it
    queue_s: float = 0.0
    sent_at: float | None = None  # when the request went to a worker
    first_token_at: float | None = None
    gaps: Tally | None = None  # seconds between two reads of a stream
    progress: Progress | None = None  # of the worker's stream, while there is one
    events: int = 0  # of a stream, with a token or more each
    usage: Usage | None = None  # as the worker reported it
    charged: Usage | None = None  # what the tenant pays for; None: nothing
    status: int = 0
    outcome: str = ""  # "ok", that of an error, "client_gone", "client_stalled" or "incomplete"
    detail: str = ""  # for the log only
    ended: float = 0.0
    ended_at: float = 0.0  # by the wall clock, seconds since 1970
