"""The corridor: the rooms that a request passes, in order, and nothing else.

identify → read → reserve → enter → rank → open → relay → settle. What a room takes is a lease around the
rooms after it, so leases close in reverse, however the request ends.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from gateway.accounting import Ledger
from gateway.admission import Admission, Turn
from gateway.auth import Authenticator
from gateway.dispatch import Dispatcher
from gateway.errors import GatewayError, RateLimited, WorkerBusy, WorkerError
from gateway.fleet import Slot
from gateway.intake import Intake
from gateway.limits import RateLimiter, Reservation
from gateway.model import Caller, Incoming, Job, Trip, Usage
from gateway.relay import Outlet, Relay

NOTICED_S = 0.01  # a prompt that is read sooner keeps nobody waiting


class Exchange(Outlet, Protocol):
    """Both ends of the caller's request."""

    async def body(self) -> bytes:
        """The whole body. From then on a caller who leaves cancels this task."""
        ...


@dataclass(frozen=True, slots=True)
class Corridor:
    auth: Authenticator
    intake: Intake
    limits: RateLimiter
    admission: Admission[Slot]
    dispatcher: Dispatcher
    relay: Relay
    ledger: Ledger

    async def walk(self, incoming: Incoming, exchange: Exchange, trip: Trip) -> None:
        """Serve one request. Raises GatewayError; `trip` tells how far it came."""
        fields = incoming.fields
        trip.caller = caller = self.auth.recognise(fields) or await self.auth.identify(fields)
        try:
            trip.job = job = self.intake.read(incoming, await exchange.body(), caller)
            with await self.limits.reserve(job) as reservation:
                trip.quotas = reservation.quotas
                with await self.admission.enter(job, trip) as turn:
                    await self._serve(job, turn, reservation, exchange, trip)
        except GatewayError as error:
            await self._note(error, caller, trip)
            raise

    async def _serve(
        self, job: Job, turn: Turn[Slot], reservation: Reservation, exchange: Exchange, trip: Trip
    ) -> None:
        began = False
        read = None
        if job.stream:
            trip.gaps = self.ledger.gaps()
        else:
            read = _read_later(turn)
        try:
            while True:
                try:
                    with await self.dispatcher.open(job, turn, trip) as answer:
                        await self.relay.run(answer, job, exchange, trip, turn.place)
                    break
                except (WorkerError, WorkerBusy) as error:
                    if not self.dispatcher.failed(job, turn, trip, error):
                        raise
            self.dispatcher.ended(turn.place.member, trip)
            began = trip.outcome != "worker_refused"
        except WorkerError:
            began = trip.events > 0
            raise
        except (
            asyncio.CancelledError
        ):  # the caller left; the worker had the request, unless it never got there
            began = trip.sent_at is not None
            raise
        finally:
            if read is not None:
                read.cancel()
            if job.stream:
                turn.place.streamed(trip.events)
            self._settle(job, reservation, trip, began)

    def _settle(self, job: Job, reservation: Reservation, trip: Trip, began: bool) -> None:
        """Charge what the worker says it did, else what can be known of it; nothing if it did not begin."""
        if trip.usage:
            trip.charged = trip.usage
            self.intake.learn(job, trip.usage)
        elif began:
            trip.charged = Usage(job.prompt_tokens, trip.events)
        if trip.charged:
            reservation.charge(trip.charged)

    async def _note(self, error: GatewayError, caller: Caller, trip: Trip) -> None:
        if isinstance(error, RateLimited):
            self.ledger.limited[error.kind,] += 1
            trip.quotas = error.quotas
        if trip.quotas is None:
            trip.quotas = await self.limits.look(caller.tenant)


def _read_later(turn: Turn[Slot]) -> asyncio.TimerHandle | None:
    """A whole answer has no first token that shows, so its prompt counts as read after a while."""
    delay_s = turn.place.prefill_s()
    if delay_s < NOTICED_S:
        turn.place.prompt_done()
        return None
    return asyncio.get_running_loop().call_later(delay_s, lambda: turn.place.prompt_done())
