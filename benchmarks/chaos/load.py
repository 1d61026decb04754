"""Who calls, when and how? Tenants with limits and one without, at random but from a seed."""

import asyncio
import random
from collections.abc import Callable, Mapping

from benchmarks.chaos import hostile, raw
from benchmarks.chaos.calls import Call, Wish
from benchmarks.chaos.plan import BY_REQUESTS, BY_SLOTS, BY_TOKENS, OPEN, Plan
from benchmarks.chaos.script import PROBE
from benchmarks.chaos.sdk import SdkCaller

SHARES = {OPEN: 0.4, BY_REQUESTS: 0.2, BY_TOKENS: 0.2, BY_SLOTS: 0.2}
HOSTILE = 0.05
BY_SDK = 0.3
LEAVE_EARLY = 0.12  # before a token, as a rule
LEAVE_LATE = 0.12
SLOW = 0.05
LONG = 0.1
PROBES = 4  # of each replica, when all is over


class Load:
    """Makes calls, and tells `note` what came of them. ports: by replica. keys: by tenant."""

    def __init__(
        self,
        plan: Plan,
        keys: Mapping[str, str],
        ports: Mapping[int, int],
        by_sdk: SdkCaller,
        note: Callable[[Call], None],
    ) -> None:
        self._note = note
        self._plan = plan
        self._keys = keys
        self._ports = ports
        self._by_sdk = by_sdk
        self._rng = random.Random(plan.seed)
        self._made = 0

    async def run(self) -> None:
        """Call until the time is over; returns once all calls have ended."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._plan.seconds
        due = loop.time()
        burst_due = due + self._plan.burst_every_s / 2
        async with asyncio.TaskGroup() as group:
            while due < ends:
                await asyncio.sleep(max(0.0, due - loop.time()))
                count = 1
                if due >= burst_due:
                    burst_due += self._plan.burst_every_s
                    count = self._plan.burst
                for _ in range(count):
                    group.create_task(self._call())
                due += self._rng.expovariate(self._plan.per_s)

    async def probe(self) -> None:
        """Now that nothing goes wrong any more."""
        for replica in self._ports:
            for number in range(PROBES):
                wish = Wish(
                    f"{PROBE}{replica}-{number}", OPEN, chat=True, stream=True, max_tokens=8, prompt="Well?"
                )
                self._note(await raw.ask(wish, self._keys[OPEN], replica, self._ports[replica]))

    async def _call(self) -> None:
        rng = self._rng
        wish, replica = self._wish(), rng.choice(list(self._ports))
        key, port = self._keys[wish.tenant], self._ports[replica]
        drawn = rng.random()
        if drawn < HOSTILE:
            name = rng.choice(list(hostile.ATTACKS))
            call = await hostile.attack(name, wish, key, replica, port)
        elif drawn < HOSTILE + BY_SDK:
            call = await self._by_sdk.ask(wish, replica)
        else:
            call = await raw.ask(wish, key, replica, port)
        self._note(call)

    def _wish(self) -> Wish:
        rng = self._rng
        self._made += 1
        stream = rng.random() < 0.7
        most = rng.randrange(60, 160) if rng.random() < LONG else rng.randrange(2, 30)
        drawn = rng.random()
        early = drawn < LEAVE_EARLY
        late = stream and LEAVE_EARLY <= drawn < LEAVE_EARLY + LEAVE_LATE
        slow = LEAVE_EARLY + LEAVE_LATE <= drawn < LEAVE_EARLY + LEAVE_LATE + SLOW
        return Wish(
            f"c{self._made}",
            rng.choices(list(SHARES), list(SHARES.values()))[0],
            chat=rng.random() < 0.5,
            stream=stream,
            max_tokens=most,
            prompt=" ".join(["word"] * rng.randrange(3, 80)),
            with_usage=stream and rng.random() < 0.5,
            leaves_after_s=rng.uniform(0.0, 0.5) if early else None,
            leaves_after_tokens=rng.randrange(1, most) if late and most > 1 else None,
            pause_s=0.1 if slow else 0.0,
        )
