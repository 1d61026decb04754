"""What kinds of value do settings take? Their bounds, and what is said of one that is out of them."""

import re
from datetime import datetime
from itertools import pairwise
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Section(BaseModel):
    # Validators are made when they are first used: a start uses few of those that the admin API has.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True)


def text(pattern: str, allowed: str) -> AfterValidator:
    """Text that matches as a whole; `allowed` says the same in words, for the message."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {allowed}")
        return value

    return AfterValidator(check)


# Safe as a metric label, in a log line and in TOML quotes.
Identifier = Annotated[str, text(r"[A-Za-z0-9._-]{1,64}", "1 to 64 letters, digits or . _ -")]
MODEL_NAME = r"[A-Za-z0-9._:/@-]{1,200}"
ModelName = Annotated[str, text(MODEL_NAME, "1 to 200 letters, digits or . _ : / @ -")]
VariableName = Annotated[str, text(r"([A-Za-z_][A-Za-z0-9_]*)?", "a variable's name: letters, digits or _")]
ModelChoice = Annotated[str, text(rf"\*|{MODEL_NAME}", 'a model\'s name or alias, or "*" for all')]
Port = Annotated[int, Field(ge=0, le=65535)]  # 0: any free one
Seconds = Annotated[float, Field(gt=0, le=86400)]
Positive = Annotated[int, Field(ge=1)]
PerMinute = Annotated[int, Field(ge=1, le=10**9)]  # far above any fleet, far below where arithmetic blurs
PerDay = Annotated[int, Field(ge=1, le=10**12)]
KeyHash = Annotated[str, text("[0-9a-fA-F]{64}", "64 hex digits"), AfterValidator(str.lower)]


def worker_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, or a port that is none
        is_whole = False
    if not is_whole or not re.fullmatch(r"[!-~]+", value):
        raise ValueError("must be http://host:port or https://host:port")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("must have no user, query or fragment; a worker's key goes into api_key_env")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ValueError("must end before /v1, which the gateway adds")
    return value.rstrip("/")


def rising(value: list[int]) -> list[int]:
    if any(edge <= 0 for edge in value) or any(a >= b for a, b in pairwise(value)):
        raise ValueError("must be positive and rising, as [1024, 8192]")
    return value


_REDIS = re.compile(
    r"rediss?://([^@/?#]*@)?[^@/?#,:]+(:\d{1,5})?(/\d{0,4})?"
    r"|rediss?://([^@/?#]*@)?\[[0-9A-Fa-f:.]+\](:\d{1,5})?(/\d{0,4})?"
    r"|rediss?\+sentinel://([^@/?#]*@)?[^@/?#:,]+:\d{1,5}(,[^@/?#:,]+:\d{1,5})*/[^/?#@]+(/\d{0,4})?"
    r"|unix://([^@/?#]*@)?/[^?#]+(\?db=\d{1,4})?"
)


def store_url(value: str) -> str:
    if value != "memory://" and not _REDIS.fullmatch(value):
        raise ValueError(
            'must be "memory://", "redis://[user:password@]host:port/db", the same with rediss:// for TLS, '
            '"redis+sentinel://host:port,host:port/service/db" or "unix:///path"'
        )
    return value


def with_timezone(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must have a timezone, as 2027-01-31T00:00:00Z")
    return value


WorkerUrl = Annotated[str, AfterValidator(worker_url)]
StoreUrl = Annotated[str, AfterValidator(store_url)]
AwareTime = Annotated[datetime, AfterValidator(with_timezone)]
