"""Spending limits, and limits of spawning."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.actor.clock import from_iso
from klaw.config.schema import SubagentsConfig
from klaw.domain.task import Every
from klaw.runs.limits import RunLimit, answer_tokens, limits_of, refusal, spawn_refusal
from tests.support.runs.schedule import a_task

NOON = from_iso("2026-11-22T12:00:00Z")
TASK = a_task("a", Every(seconds=3600), since=NOON)


def counts(run: int, task_day: int, user_day: int) -> dict[RunLimit, int]:
    return {RunLimit.USER_DAY: user_day, RunLimit.TASK_DAY: task_day, RunLimit.RUN: run}


def limits_from(run: int, task_day: int, user_day: int) -> dict[RunLimit, int]:
    return {limit: most for limit, most in counts(run, task_day, user_day).items() if most}


def test_a_task_s_own_limits_go_before_the_configured():
    configured = SubagentsConfig(max_tokens=100, daily_tokens=500)
    assert limits_of(TASK, configured) == {RunLimit.USER_DAY: 500, RunLimit.RUN: 100}
    own = attrs.evolve(TASK, max_tokens=7, daily_tokens=9)
    assert limits_of(own, configured) == counts(run=7, task_day=9, user_day=500)
    assert limits_of(None, attrs.evolve(configured, daily_tokens=0)) == {RunLimit.RUN: 100}


def test_without_limits_nothing_is_refused():
    assert refusal({}, counts(10**9, 10**9, 10**9), 10**6) is None


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (limits_from(run=100, task_day=0, user_day=0), RunLimit.RUN),
        (limits_from(run=0, task_day=200, user_day=0), RunLimit.TASK_DAY),
        (limits_from(run=0, task_day=0, user_day=300), RunLimit.USER_DAY),
        (limits_from(run=100, task_day=200, user_day=300), RunLimit.USER_DAY),
    ],
)
def test_what_would_pass_a_limit_is_refused_with_the_figures(limits, limit):
    used = counts(run=60, task_day=160, user_day=260)
    assert refusal(limits, used, 40) is None
    refused = refusal(limits, used, 41)
    assert refused.limit == limit
    assert "41" in str(refused)


@given(
    limits=st.tuples(*[st.integers(0, 1000)] * 3),
    used=st.tuples(*[st.integers(0, 1000)] * 3),
    prompt=st.integers(1, 500),
    most=st.integers(1, 500),
)
def test_an_allowed_call_stays_within_all_limits(limits, used, prompt, most):
    limits, used = limits_from(*limits), counts(*used)
    if refusal(limits, used, prompt + 1) is None:
        whole = prompt + answer_tokens(limits, used, prompt, most)
        assert refusal(limits, used, whole) is None
        assert prompt < whole <= prompt + most


def test_spawning_is_limited_in_depth_and_number():
    config = SubagentsConfig(max_depth=1, max_spawned=2)
    assert spawn_refusal(depth=1, unfinished=1, config=config) is None
    assert spawn_refusal(depth=2, unfinished=0, config=config).startswith("subagents may be nested 1 deep")
    assert spawn_refusal(depth=0, unfinished=2, config=config).startswith("2 spawned subagents are not finished")
