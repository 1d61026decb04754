"""How fast is a worker? Learnt from the requests it has served."""

from typing import NamedTuple

from gateway.estimates.line import Line

MIN_STREAMED_TOKENS = 8  # the time per token of a shorter answer is mostly chance
LEAST_DECODING = 0.1  # of a stream's time: however much was prefilled meanwhile, it did go on


class Speed(NamedTuple):
    """Seconds that a worker takes. Prompt tokens are those of `prefill_cost`.

    The defaults were fitted to a 7B model in bf16 on one H200 (vLLM 0.24): lone prompts of 1,024 to 30,000
    tokens, and 1 to 128 streams of 512 tokens. (Its longest prompt divided by its tokens gives 33
    microseconds; a third of that is the quadratic part.) The first requests of another machine correct them.
    """

    first_token_s: float = 7e-3  # until the first token, were there no prompt
    prefill_token_s: float = 21e-6
    step_s: float = 4.9e-3  # one token of each stream, were there no streams
    decode_token_s: float = 28e-6  # by which each stream lengthens a step


class Coefficients:
    """The speed of one worker. Learning takes constant time and memory."""

    def __init__(self, start: Speed | None = None) -> None:
        start = start or Speed()
        self._prefill = Line(start.first_token_s, start.prefill_token_s)
        self._decode = Line(start.step_s, start.decode_token_s)
        self._begun_by_s = start.first_token_s / start.prefill_token_s  # tokens that take as long as none

    @property
    def speed(self) -> Speed:
        prefill, decode = self._prefill, self._decode
        return Speed(prefill.floor, prefill.slope, decode.floor, decode.slope)

    def first_token(self, ahead_tokens: int, own_tokens: int, waited_s: float) -> None:
        """A first token came `waited_s` > 0 after the request went to the worker.

        own_tokens: its `prefill_cost`. ahead_tokens: those of the requests that were there before it and had
        no first token. The more of them, the less the wait tells: the worker was somewhere amid the first
        of them, and need not take them in order.
        """
        own = self._begun_by_s + own_tokens
        tokens = ahead_tokens + own_tokens
        self._prefill.learn(tokens, waited_s, own / (own + ahead_tokens))

    def streamed(self, tokens: int, lasted_s: float, streams: float, prefilled_tokens: int) -> None:
        """A stream of `tokens` ended, `lasted_s` after its first token.

        streams: how many there were meanwhile, itself included. prefilled_tokens: the `prefill_cost` of
        prompts that were done meanwhile; the time they took is not decoding's.
        """
        if tokens < MIN_STREAMED_TOKENS:
            return
        decoding_s = max(lasted_s - prefilled_tokens * self._prefill.slope, lasted_s * LEAST_DECODING)
        self._decode.learn(streams, decoding_s / (tokens - 1))
