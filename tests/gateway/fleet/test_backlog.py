"""Is an operator told, once, that requests wait inside a worker?"""

import logging

import pytest

from gateway.fleet.backlog import SOME, Backlog


def metrics(*waiting: float) -> str:
    """As vLLM tells them, of each engine."""
    told = [
        f'vllm:num_requests_waiting{{engine="{n}",model_name="m"}} {count}' for n, count in enumerate(waiting)
    ]
    return "\n".join(
        [
            "# HELP vllm:num_requests_waiting Number of requests waiting to be processed.",
            "# TYPE vllm:num_requests_waiting gauge",
            *told,
            'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0',
            "",
        ]
    )


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "gateway.fleet.backlog")
    return caplog


@pytest.mark.parametrize("looks", [["", "", ""], [metrics(SOME)] * 3, [metrics(99), metrics(0), metrics(99)]])
def test_a_few_or_for_a_moment_is_no_alarm(looks: list[str], said: pytest.LogCaptureFixture) -> None:
    backlog = Backlog("w0")
    for look in looks:
        backlog.look(look)
    assert not said.messages


def test_many_at_two_looks_are_told_of_once_and_so_is_their_end(said: pytest.LogCaptureFixture) -> None:
    backlog = Backlog("w0")
    for look in [metrics(5, 7), metrics(30.0), metrics(31), metrics(40), metrics(2), metrics(1)]:
        backlog.look(look)
    [alarm, end] = said.messages
    assert "worker w0 keeps 30 requests waiting inside it" in alarm
    assert "--max-num-seqs" in alarm
    assert end == "worker w0 keeps none waiting any more"


def test_it_may_begin_again(said: pytest.LogCaptureFixture) -> None:
    backlog = Backlog("w0")
    for _ in range(2):
        for look in [metrics(30), metrics(30), metrics(0)]:
            backlog.look(look)
    assert len(said.messages) == 4


def test_a_gauge_without_labels_is_read_too(said: pytest.LogCaptureFixture) -> None:
    backlog = Backlog("w0")
    for _ in range(2):
        backlog.look("vllm:num_requests_waiting 1e+02\n")
    assert "keeps 100 requests" in said.text
