"""What does one process tell the others? A few hundred bytes of MessagePack, many times a second."""

from typing import Annotated

from msgspec import DecodeError, Meta, Struct, msgpack

FORMAT = 1  # to be raised where a reader of the last one would take something for what it is not
MOST_BYTES = 256 * 1024
MOST_NAMES = 10_000  # of workers, models or tenants; in all, MOST_BYTES hold fewer

Count = Annotated[int, Meta(ge=0, le=2**40)]
Amount = Annotated[float, Meta(ge=0, le=2.0**53)]
Name = Annotated[str, Meta(max_length=256)]
Names = Meta(max_length=MOST_NAMES)


class WorkerShare(Struct, array_like=True, frozen=True):
    """What one process, or several together, have at a worker."""

    in_flight: Count = 0
    prefilling: Count = 0  # of those, without a first token
    prefill_tokens: Count = 0  # still to do, as `estimates.prefill_cost` counts them
    decode_tokens: Count = 0  # still expected
    long_prefills: Count = 0

    def __add__(self, other: "WorkerShare") -> "WorkerShare":
        return WorkerShare(
            self.in_flight + other.in_flight,
            self.prefilling + other.prefilling,
            self.prefill_tokens + other.prefill_tokens,
            self.decode_tokens + other.decode_tokens,
            self.long_prefills + other.long_prefills,
        )


NOTHING = WorkerShare()


class Waiting(Struct, array_like=True, frozen=True):
    """Requests for one model that are in a process's queue.

    for_place: those that lack nothing but a place at a worker. Long prompts are among them only while one
    could be prefilled at once: otherwise places would be kept free for requests that may not take them.
    for_long_prefill: all long prompts.
    """

    for_place: Count = 0
    for_long_prefill: Count = 0


class Report(Struct, array_like=True, frozen=True, tag=FORMAT):
    """Of one process. Fields that are added at the end break no older reader.

    workers: by worker's id; those at which it has something. waiting: by model; those for which something
    waits. served: work by model and tenant, see `Served`.
    """

    workers: Annotated[dict[Name, WorkerShare], Names] = {}
    waiting: Annotated[dict[Name, Waiting], Names] = {}
    served: Annotated[dict[Name, Annotated[dict[Name, Amount], Names]], Names] = {}

    @property
    def is_idle(self) -> bool:
        """Whether the others lose nothing by hearing later of what comes next."""
        return not self.workers and not self.waiting


encode = msgpack.Encoder().encode
_read = msgpack.Decoder(Report).decode


def decode(raw: bytes) -> Report | None:
    """None for what is no report, or one of another format."""
    if len(raw) > MOST_BYTES:
        return None
    try:
        return _read(raw)
    except (DecodeError, RecursionError):  # the latter for what is nested without end
        return None
