"""Which few numbers tell how a load was served? Pure: answers in, figures out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.routing.caller import Answer
from benchmarks.simulator.loads import quantile

SLO_TTFT_S = 0.5  # the objective for the first token of an empty prompt
SLO_TTFT_S_PER_TOKEN = 0.0001  # and what each token of the prompt adds
SLO_TPOT_S = 0.05
OUTPUT_WEIGHT = 2  # an output token is as much work as two of a prompt: VTC's weights


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """Of the calls of one size. Times are those of calls that got a first token, None where none did."""

    n: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_mean_s: float | None
    tpot_p99_s: float | None  # of whole answers


@dataclass(frozen=True, slots=True)
class Figures:
    """Shares are of all calls unless said otherwise."""

    sizes: dict[str, SizeFigures]  # "short", "long", "all"
    goodput_rps: float  # whole answers within the objectives, a second in which calls were made
    hit_share: float  # of the prompt tokens of whole answers, found in a prefix cache
    jain: float  # of what tenants got against their fair share; 1 at best
    shed_share: float
    failed_share: float
    cut_share: float
    gave_up_share: float
    tenant_ttft_p99_s: dict[str, float | None]
    wasted_tokens: float | None  # in the whole run, generated for answers that nobody got whole
    late_max_s: float  # by which the client itself was late


def figures(
    answers: Sequence[Answer], lasts_s: float, warm_up_s: float, generated_tokens: float | None
) -> Figures:
    """Of the calls planned from warm_up_s on and before lasts_s.

    answers: of the whole run. generated_tokens: by all workers in it, None where they are not asked.
    Raises ValueError where no call is left.
    """
    counted = [each for each in answers if warm_up_s <= each.call.at_s < lasts_s]
    if not counted:
        raise ValueError(f"no call is planned between {warm_up_s:g} and {lasts_s:g} s")
    whole = [each for each in counted if each.outcome == "ok"]
    prompt_tokens = sum(each.call.prompt_tokens for each in whole)
    got_tokens = sum(each.tokens for each in answers if each.outcome == "ok")
    return Figures(
        sizes=_by_size(counted),
        goodput_rps=sum(map(meets_slo, whole)) / (lasts_s - warm_up_s),
        hit_share=sum(each.cached_tokens for each in whole) / prompt_tokens if prompt_tokens else 0.0,
        jain=_jain(counted),
        shed_share=_share(counted, "shed"),
        failed_share=_share(counted, "failed"),
        cut_share=_share(counted, "cut"),
        gave_up_share=_share(counted, "gave_up"),
        tenant_ttft_p99_s={
            tenant: _quantile(_ttfts_s(theirs), 0.99) for tenant, theirs in _by_tenant(counted).items()
        },
        wasted_tokens=None if generated_tokens is None else generated_tokens - got_tokens,
        late_max_s=max(each.late_s for each in counted),
    )


def meets_slo(answer: Answer) -> bool:
    """Whether an answer was whole, began in time for its prompt's length, and went on fast enough."""
    if answer.outcome != "ok" or answer.ttft_s is None or answer.tpot_s is None:
        return False
    most_ttft_s = SLO_TTFT_S + SLO_TTFT_S_PER_TOKEN * answer.call.prompt_tokens
    return answer.ttft_s <= most_ttft_s and answer.tpot_s <= SLO_TPOT_S


def fair_shares(asked: Mapping[str, float], served: float) -> dict[str, float]:
    """What each would have got of the `served` in all, if fairly: max-min.

    Who asks for less than an equal part gets all of it; what is left over goes in equal parts to the others.
    """
    shares: dict[str, float] = {}
    left = served
    for count, (tenant, wish) in enumerate(sorted(asked.items(), key=lambda item: item[1])):
        shares[tenant] = min(wish, left / (len(asked) - count))
        left -= shares[tenant]
    return shares


def jain_index(ratios: Iterable[float]) -> float:
    """1 where all are equal, 1/n where one of n has everything; 1 where nobody has anything (Jain 1984)."""
    values = list(ratios)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _jain(answers: Sequence[Answer]) -> float:
    """Over the tenants' work in whole answers, each divided by the fair share of all that work."""
    tenants = _by_tenant(answers)
    asked = {tenant: sum(map(_work, theirs)) for tenant, theirs in tenants.items()}
    got = {
        tenant: sum(_work(each) for each in theirs if each.outcome == "ok")
        for tenant, theirs in tenants.items()
    }
    fair = fair_shares(asked, sum(got.values()))
    return jain_index(got[tenant] / fair[tenant] for tenant in tenants if fair[tenant])


def _work(answer: Answer) -> float:
    return answer.call.prompt_tokens + OUTPUT_WEIGHT * answer.call.output_tokens


def _by_tenant(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    found = defaultdict(list)
    for answer in answers:
        found[answer.call.tenant].append(answer)
    return dict(sorted(found.items()))


def _by_size(answers: Sequence[Answer]) -> dict[str, SizeFigures]:
    sizes = {size: [each for each in answers if each.call.size == size] for size in ("short", "long")}
    return {size: _of_size(each) for size, each in {**sizes, "all": answers}.items()}


def _of_size(answers: Sequence[Answer]) -> SizeFigures:
    ttfts_s = _ttfts_s(answers)
    tpots_s = [each.tpot_s for each in answers if each.outcome == "ok" and each.tpot_s is not None]
    return SizeFigures(
        n=len(answers),
        ttft_p50_s=_quantile(ttfts_s, 0.5),
        ttft_p99_s=_quantile(ttfts_s, 0.99),
        ttft_mean_s=fmean(ttfts_s) if ttfts_s else None,
        tpot_p99_s=_quantile(tpots_s, 0.99),
    )


def _ttfts_s(answers: Iterable[Answer]) -> list[float]:
    return [each.ttft_s for each in answers if each.ttft_s is not None]


def _quantile(values: Sequence[float], share: float) -> float | None:
    return quantile(values, share) if values else None


def _share(answers: Sequence[Answer], outcome: str) -> float:
    return sum(each.outcome == outcome for each in answers) / len(answers)
