"""Which requests get how many tokens in which step? The scheduler of vLLM V1, in virtual time.

A step has a budget of tokens. Requests under way come first, in the order in which they were let in: one
token for a decode, a chunk for a prompt; then waiting ones, first come first served, while there are seats
and KV blocks. Where a request under way finds no block, the youngest loses its blocks and starts again later
(recompute). As with vLLM's asynchronous scheduling, a step is planned when the one before it starts: who
comes meanwhile waits for the next but one. Blocks of generated tokens are never shared.
"""

from collections import deque
from collections.abc import Iterator

from benchmarks.simulator.blocks import BLOCK_TOKENS, KvBlocks, blocks_of
from benchmarks.simulator.costs import Costs
from benchmarks.simulator.request import Event, Limits, Request
from benchmarks.simulator.step import Plan, Sequence, Step


class Engine:
    """One worker's engine. Times are seconds on the caller's clock, which never runs backwards."""

    def __init__(self, limits: Limits, costs: Costs) -> None:
        self.limits = limits
        self.steps = 0  # finished
        self.preemptions = 0
        self._costs = costs
        self._blocks = KvBlocks(limits.kv_tokens // BLOCK_TOKENS)
        self._front_free_s = 0.0  # the process that parses requests does so one after the other
        self._coming: deque[tuple[float, Sequence]] = deque()  # not yet in the engine's queue
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._sequences: dict[Request, Sequence] = {}
        self._now_s = 0.0  # when the last step ended
        self._current: tuple[float, Step] | None = None  # with its end
        self._next: Step | None = None

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._sequences) - len(self._running)

    @property
    def kv_usage(self) -> float:
        """The share of blocks in use, 0 to 1."""
        return 1 - self._blocks.free / self._blocks.capacity

    @property
    def next_s(self) -> float | None:
        """When there may be something to tell; None while there is nothing to do."""
        if self._current is not None:
            return self._current[0]
        return self._coming[0][0] if self._coming else None

    def submit(self, request: Request, now_s: float) -> None:
        """Not before any earlier one. Raises ValueError where the context is too short for it."""
        if not 0 < request.prompt_tokens <= self.limits.max_model_len - request.output_tokens:
            raise ValueError(f"{request} does not fit into {self.limits.max_model_len} tokens")
        sequence = self._sequences[request] = Sequence(request, request.prompt_tokens)
        self._front_free_s = max(now_s, self._front_free_s) + self._costs.request_s
        self._coming.append((self._front_free_s, sequence))

    def abort(self, request: Request) -> None:
        """Nothing more is told of it. A step that has been planned with it takes as long as it would have."""
        sequence = self._sequences.pop(request, None)
        if sequence is None:
            return
        sequence.gone = True
        if sequence in self._running:
            self._running.remove(sequence)
            self._release(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        else:
            self._coming = deque(entry for entry in self._coming if entry[1] is not sequence)

    def advance(self, until_s: float) -> Iterator[Event]:
        """What happens up to then, in order. Submissions meanwhile, at an event's time or later, are seen."""
        while True:
            if self._current is None and not self._wake(until_s):
                return
            if self._current is None or self._current[0] > until_s:
                return
            self._now_s, step = self._current
            self.steps += 1
            yield from self._tell(step)
            self._start()

    def _wake(self, until_s: float) -> bool:
        """Start a step when the next request comes, if that is not later than this."""
        if not self._coming or self._coming[0][0] > until_s:
            return False
        self._now_s = self._coming[0][0]
        self._start()
        return True

    def _start(self) -> None:
        """Run what was planned, and plan what follows it."""
        step = self._next
        if step is None or step.is_empty:
            step = self._plan()
        if step.is_empty:
            self._current = self._next = None
            return
        self._current = (self._now_s + self._costs.of(step.work), step)
        self._next = self._plan()

    def _tell(self, step: Step) -> Iterator[Event]:
        ended = False
        for sequence in step.yields:
            if sequence.gone:
                continue
            sequence.emitted += 1
            request = sequence.request
            finished = sequence.emitted == request.output_tokens
            if finished:
                ended = sequence.gone = True
                del self._sequences[request]
                self._release(sequence)
            yield Event(request, self._now_s, sequence.cached or 0, sequence.emitted, finished)
        if ended:
            self._running = [sequence for sequence in self._running if not sequence.gone]

    def _plan(self) -> Step:
        while self._coming and self._coming[0][0] <= self._now_s:
            self._waiting.append(self._coming.popleft()[1])
        plan = Plan(self.limits.max_num_batched_tokens)
        self._continue(plan)
        self._admit(plan)  # nobody, where one has just lost its blocks: it is first and needs more than that
        return plan.step()

    def _continue(self, plan: Plan) -> None:
        """Plan those under way. Only the last can find too little budget: nobody is let in behind it."""
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            index += 1
            if sequence.is_planned:
                continue
            tokens = self._chunk(sequence.known - sequence.computed, plan)
            while not self._grow(sequence, tokens):
                if self._preempt_youngest() is sequence:
                    return
            plan.add(sequence, tokens)

    def _admit(self, plan: Plan) -> None:
        while self._waiting and plan.budget and len(self._running) < self.limits.max_num_seqs:
            sequence = self._waiting[0]
            if not self._let_in(sequence):
                return
            self._waiting.popleft()
            self._running.append(sequence)
            tokens = self._chunk(sequence.known - sequence.computed, plan)
            self._grow(sequence, tokens)
            plan.add(sequence, tokens)

    def _let_in(self, sequence: Sequence) -> bool:
        """Use what is known of its prefix. False where the whole of it does not fit (reserve-full-isl)."""
        prefix = sequence.request.prefix
        # The last token is always computed: it is what the first new one comes from.
        hits = self._blocks.known(prefix, (sequence.known - 1) // BLOCK_TOKENS)
        shared = prefix[:hits]
        free = self._blocks.free - self._blocks.idle_among(shared)
        if blocks_of(sequence.known) - hits > free:
            return False
        self._blocks.share(shared)
        sequence.shared = list(shared)
        sequence.computed = hits * BLOCK_TOKENS
        if sequence.cached is None:
            sequence.cached = sequence.computed
        return True

    def _chunk(self, tokens: int, plan: Plan) -> int:
        """So many of these tokens in one step."""
        threshold = self.limits.long_prefill_token_threshold
        if threshold and len(self._sequences) > 1:
            tokens = min(tokens, threshold)
        return min(tokens, plan.budget)

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Take the blocks for so many more tokens, and let others use those of the prompt that are full."""
        computed = sequence.computed + tokens
        missing = blocks_of(computed) - len(sequence.shared) - sequence.private
        if missing > 0:
            if not self._blocks.take(missing):
                return False
            sequence.private += missing
        prefix = sequence.request.prefix
        full = min(computed // BLOCK_TOKENS, len(prefix))
        while sequence.published < full:
            link = prefix[sequence.published]
            sequence.published += 1
            if self._blocks.publish(link):
                sequence.shared.append(link)
                sequence.private -= 1
        return True

    def _preempt_youngest(self) -> Sequence:
        """Of those that need another step; the others are about to give back their blocks anyway."""
        sequence = next(found for found in reversed(self._running) if not found.is_planned)
        self._running.remove(sequence)
        self._release(sequence)
        self._waiting.appendleft(sequence)
        self.preemptions += 1
        return sequence

    def _release(self, sequence: Sequence) -> None:
        self._blocks.give_back(sequence.shared, sequence.private)
        sequence.shared, sequence.private, sequence.computed, sequence.published = [], 0, 0, 0
