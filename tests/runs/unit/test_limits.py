"""Spending limits, and limits of spawning."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.actor.clock import from_iso
from klaw.domain.names import UserId
from klaw.domain.task import Every, RunStatus
from klaw.runs.limits import (
    Refusal,
    RunLimit,
    TokenLimits,
    TokensUsed,
    answer_tokens,
    refusal,
    spawn_refusal,
    tells_user,
    tokens_of,
)
from tests.support.runs.schedule import a_run, a_task

NOON = from_iso("2026-11-22T12:00:00Z")
TASK = a_task("a", Every(seconds=3600), since=NOON)
NONE = TokenLimits(run=0, task_day=0, user_day=0)


def test_a_task_s_own_limits_go_before_the_configured():
    assert tokens_of(TASK, max_tokens=100, daily_tokens=500) == TokenLimits(run=100, task_day=0, user_day=500)
    own = attrs.evolve(TASK, max_tokens=7, daily_tokens=9)
    assert tokens_of(own, max_tokens=100, daily_tokens=500) == TokenLimits(run=7, task_day=9, user_day=500)
    assert tokens_of(None, max_tokens=100, daily_tokens=0) == TokenLimits(run=100, task_day=0, user_day=0)


def test_without_limits_nothing_is_refused():
    assert refusal(NONE, TokensUsed(run=10**9, task_day=10**9, user_day=10**9), 10**6) is None


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (TokenLimits(run=100, task_day=0, user_day=0), RunLimit.RUN),
        (TokenLimits(run=0, task_day=200, user_day=0), RunLimit.TASK_DAY),
        (TokenLimits(run=0, task_day=0, user_day=300), RunLimit.USER_DAY),
        (TokenLimits(run=100, task_day=200, user_day=300), RunLimit.USER_DAY),
    ],
)
def test_what_would_pass_a_limit_is_refused_with_the_figures(limits, limit):
    used = TokensUsed(run=60, task_day=160, user_day=260)
    assert refusal(limits, used, 40) is None
    refused = refusal(limits, used, 41)
    assert refused.limit is limit
    assert "41" in refused.note


@given(
    limits=st.tuples(*[st.integers(0, 1000)] * 3),
    used=st.tuples(*[st.integers(0, 1000)] * 3),
    prompt=st.integers(1, 500),
    most=st.integers(1, 500),
)
def test_an_allowed_call_stays_within_all_limits(limits, used, prompt, most):
    limits = TokenLimits(run=limits[0], task_day=limits[1], user_day=limits[2])
    used = TokensUsed(run=used[0], task_day=used[1], user_day=used[2])
    if refusal(limits, used, prompt + 1) is None:
        whole = prompt + answer_tokens(limits, used, prompt, most)
        assert refusal(limits, used, whole) is None
        assert prompt < whole <= prompt + most


def test_the_user_is_told_once_a_day_of_each_limit():
    run = a_run(TASK, NOON, RunStatus.REFUSED)
    by_task, by_user = (Refusal(limit=limit, note="") for limit in (RunLimit.TASK_DAY, RunLimit.USER_DAY))
    told = a_run(TASK, NOON - 60, RunStatus.REFUSED, error=str(RunLimit.TASK_DAY), details={"told": True})
    assert tells_user(by_task, run, [])
    assert tells_user(by_task, run, [attrs.evolve(told, details={})])
    assert not tells_user(by_task, run, [told, run])
    assert tells_user(by_user, run, [told])
    other_task = attrs.evolve(told, task="b")
    assert tells_user(by_task, run, [other_task])
    assert not tells_user(by_user, run, [attrs.evolve(other_task, error=str(RunLimit.USER_DAY))])
    assert tells_user(by_task, run, [attrs.evolve(told, user=UserId("other"))])
    assert tells_user(by_task, run, [attrs.evolve(told, started_at="2026-11-21T23:59:00.000Z")])


def test_spawning_is_limited_in_depth_and_number():
    limits = {"max_depth": 1, "max_spawned": 2}
    assert spawn_refusal(depth=1, unfinished=1, **limits) is None
    assert spawn_refusal(depth=2, unfinished=0, **limits).startswith("subagents may be nested 1 deep")
    assert spawn_refusal(depth=0, unfinished=2, **limits).startswith("2 spawned subagents are not finished")
