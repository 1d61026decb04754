"""Do the figures tell of a load what happened in it?"""

from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing.caller import Answer, Outcome
from benchmarks.routing.figures import SizeFigures, fair_shares, figures, jain_index, meets_slo
from benchmarks.routing.loads import Call

CALL = Call(at_s=10.0, tenant="a", size="short", prompt_tokens=1_000, output_tokens=11)
ANSWER = Answer(
    call=CALL,
    outcome="ok",
    worker="w0",
    sent_s=10.0,
    ttft_s=0.2,
    ended_s=10.5,  # 0.03 s for each token after the first
    tokens=11,
    cached_tokens=0,
)
LOST: list[Outcome] = ["shed", "failed", "cut", "gave_up"]


def at(at_s: float, answer: Answer = ANSWER, **call: Any) -> Answer:
    """The same answer to a call at another time."""
    moved_s = at_s - answer.call.at_s
    return replace(
        answer,
        call=replace(answer.call, at_s=at_s, **call),
        sent_s=answer.sent_s + moved_s,
        ended_s=answer.ended_s + moved_s,
    )


def unserved(outcome: Outcome, at_s: float = 10.0, **call: Any) -> Answer:
    return replace(at(at_s, **call), outcome=outcome, ttft_s=None, tokens=0)


def test_calls_before_the_warm_up_and_after_the_end_do_not_count() -> None:
    answers = [at(4.9), at(5.0), at(19.9), at(20.0)]

    assert figures(answers, 20.0, 5.0, None).sizes["all"].n == 2


def test_a_load_without_calls_has_no_figures() -> None:
    with pytest.raises(ValueError, match="no call is planned between 5 and 20 s"):
        figures([at(1.0)], 20.0, 5.0, None)


def test_times_are_told_by_size_and_of_all() -> None:
    slow = replace(at(11.0, size="long"), ttft_s=0.4, ended_s=12.4)
    found = figures([ANSWER, slow], 20.0, 0.0, None).sizes

    assert list(found) == ["short", "long", "all"]
    assert astuple(found["short"]) == pytest.approx((1, 0.2, 0.2, 0.2, 0.03))
    assert astuple(found["long"]) == pytest.approx((1, 0.4, 0.4, 0.4, 0.1))
    assert astuple(found["all"]) == pytest.approx((2, 0.4, 0.4, 0.3, 0.1))


def test_the_99th_percentile_is_the_value_that_one_in_a_hundred_reaches() -> None:
    answers = [replace(ANSWER, ttft_s=float(number)) for number in range(200)]
    found = figures(answers, 20.0, 0.0, None).sizes["all"]

    assert (found.ttft_p50_s, found.ttft_p99_s) == (100.0, 198.0)


@pytest.mark.parametrize("outcome", ["shed", "failed", "gave_up"])
def test_who_got_no_token_has_no_time(outcome: Outcome) -> None:
    found = figures([unserved(outcome)], 20.0, 0.0, None)

    assert found.sizes["all"] == SizeFigures(1, None, None, None, None)
    assert found.tenant_ttft_p99_s == {"a": None}


def test_the_pace_of_an_answer_that_was_cut_does_not_count_but_its_first_token_does() -> None:
    found = figures([replace(ANSWER, outcome="cut")], 20.0, 0.0, None).sizes["all"]

    assert (found.ttft_p99_s, found.tpot_p99_s) == (0.2, None)


@pytest.mark.parametrize(
    ("answer", "meets"),
    [
        (ANSWER, True),
        (replace(ANSWER, ttft_s=0.6), True),  # 0.5 s and 0.1 ms for each of 1,000 tokens
        (replace(ANSWER, ttft_s=0.61, ended_s=10.7), False),
        (replace(ANSWER, ended_s=10.69), True),
        (replace(ANSWER, ended_s=10.71), False),  # 0.051 s a token
        (replace(ANSWER, outcome="cut"), False),
        (unserved("shed"), False),
    ],
)
def test_the_objective_allows_long_prompts_more_time_and_none_a_slow_pace(
    answer: Answer, meets: bool
) -> None:
    assert meets_slo(answer) is meets


def test_goodput_is_of_the_time_in_which_calls_were_made() -> None:
    answers = [at(4.0), at(6.0), at(7.0), replace(at(8.0), ttft_s=3.0), unserved("shed", 9.0)]

    assert figures(answers, 25.0, 5.0, None).goodput_rps == pytest.approx(2 / 20.0)


def test_the_share_of_hits_is_of_the_prompt_tokens_of_whole_answers() -> None:
    hit = replace(ANSWER, cached_tokens=512)
    long = replace(ANSWER, call=replace(CALL, prompt_tokens=3_000))
    cut = replace(hit, outcome="cut")

    assert figures([hit, long, cut], 20.0, 0.0, None).hit_share == pytest.approx(512 / 4_000)
    assert figures([cut], 20.0, 0.0, None).hit_share == 0.0


def test_each_way_of_not_being_served_has_its_share() -> None:
    found = figures([ANSWER] * 6 + [unserved(outcome) for outcome in LOST], 20.0, 0.0, None)

    assert [found.shed_share, found.failed_share, found.cut_share, found.gave_up_share] == [0.1] * 4


def test_tokens_are_wasted_unless_they_are_part_of_a_whole_answer_even_in_the_warm_up() -> None:
    answers = [at(1.0), at(10.0), replace(at(11.0), outcome="cut", tokens=5)]

    assert figures(answers, 20.0, 5.0, 30.0).wasted_tokens == 8.0
    assert figures(answers, 20.0, 5.0, None).wasted_tokens is None


def test_tenants_have_their_own_waits() -> None:
    answers = [ANSWER, replace(at(11.0, tenant="b"), ttft_s=0.9)]

    assert figures(answers, 20.0, 0.0, None).tenant_ttft_p99_s == {"a": 0.2, "b": 0.9}


def test_the_latest_call_tells_how_late_the_client_was() -> None:
    answers = [ANSWER, replace(ANSWER, sent_s=10.25), replace(at(1.0), sent_s=3.0)]

    assert figures(answers, 20.0, 5.0, None).late_max_s == 0.25


def test_a_tenant_that_is_pushed_aside_by_a_flood_makes_the_index_fall() -> None:
    flood = [at(10.0, tenant="flood") for _ in range(8)] + [unserved("gave_up", tenant="flood")] * 8
    fair = figures([*flood, at(11.0, tenant="b"), at(12.0, tenant="b")], 20.0, 0.0, None)
    unfair = figures([*flood, at(11.0, tenant="b"), unserved("gave_up", tenant="b")], 20.0, 0.0, None)

    assert fair.jain == pytest.approx(1.0)  # who floods has no right to more
    assert unfair.jain == pytest.approx((8 / 7 + 1 / 2) ** 2 / (2 * ((8 / 7) ** 2 + (1 / 2) ** 2)))


def test_an_output_token_weighs_as_two_of_a_prompt() -> None:
    told = at(10.0, tenant="a", prompt_tokens=0, output_tokens=50)
    read = at(10.0, tenant="b", prompt_tokens=100, output_tokens=0)
    lost = [unserved("shed", tenant=tenant) for tenant in "ab"]

    assert figures([told, read, *lost], 20.0, 0.0, None).jain == pytest.approx(1.0)


def test_nobody_served_is_fair() -> None:
    assert figures([unserved("shed"), unserved("shed", tenant="b")], 20.0, 0.0, None).jain == 1.0


def test_the_index_is_one_of_n_where_one_has_everything() -> None:
    assert jain_index([3.0, 0.0, 0.0, 0.0]) == 0.25


@given(
    st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), min_size=1),
    st.floats(0, 1),
)
def test_fair_shares_give_out_all_there_is_and_favour_nobody(asked: dict[str, float], share: float) -> None:
    served = share * sum(asked.values())
    fair = fair_shares(asked, served)

    assert sum(fair.values()) == pytest.approx(served, abs=1e-6)
    assert all(fair[tenant] <= asked[tenant] for tenant in asked)
    most = max(fair.values())
    assert all(got == asked[tenant] or got == pytest.approx(most) for tenant, got in fair.items())
