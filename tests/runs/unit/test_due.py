"""What starts now: misfires, retries, order, and when to look again."""

import attrs
import pytest

from klaw.actor.clock import from_iso, iso
from klaw.config.schema import SubagentsConfig
from klaw.domain.names import UserId
from klaw.domain.task import At, Cron, Every, RunStatus
from klaw.runs.due import MAX_SLEEP_S, SchedulerState, decide, next_fire, repeats_after_interruption
from tests.support.runs.schedule import Simulation, a_run, a_task

NOON = from_iso("2026-11-22T12:00:00Z")
HOUR = 3600
RULES = SubagentsConfig(max_concurrent=2, retries=3)
HOURLY = Cron(expression="0 * * * *", zone="UTC")


def state(*tasks, now, attempts=(), running=(), awake_since=NOON - 100 * HOUR) -> SchedulerState:
    found = {}
    for run in attempts:
        found.setdefault((run.user, run.task), []).append(run)
    return SchedulerState(tasks=tasks, attempts=found, running=running, now=now, awake_since=awake_since)


def starts(*tasks, **more):
    return decide(state(*tasks, **more), RULES).start


def test_nothing_before_its_time():
    task = a_task("a", HOURLY, since=NOON - 10)
    decision = decide(state(task, now=NOON - 5), RULES)
    assert decision.start == ()
    assert decision.wake_at == NOON


def test_the_scheduler_looks_again_within_a_minute():
    task = a_task("a", HOURLY, since=NOON)
    assert decide(state(task, now=NOON + 1), RULES).wake_at == NOON + 1 + MAX_SLEEP_S
    assert decide(state(now=NOON), RULES).wake_at == NOON + MAX_SLEEP_S


def test_a_fire_time_starts_one_run():
    task = a_task("a", HOURLY, since=NOON - 10)
    (fire,) = starts(task, now=NOON)
    assert (fire.due, fire.attempt, fire.note, fire.skipped) == (NOON, 1, None, 0)
    assert starts(task, now=NOON, attempts=[a_run(task, NOON)]) == ()


def test_after_downtime_the_latest_time_fires_once_and_says_so():
    task = a_task("a", HOURLY, since=NOON - 50 * HOUR)
    done = a_run(task, NOON - 10 * HOUR)
    now = NOON + 1200
    (fire,) = starts(task, now=now, attempts=[done], awake_since=now)
    assert (fire.due, fire.skipped) == (NOON, 9)
    assert "20 min late: Klaw was not running" in fire.note
    assert "skipped: 9" in fire.note
    assert starts(task, now=now, attempts=[a_run(task, NOON)], awake_since=now) == ()


def test_a_one_shot_that_was_missed_fires_at_once():
    task = a_task("a", At(instant=iso(NOON)), since=NOON - HOUR)
    (fire,) = starts(task, now=NOON + 30 * 86_400, awake_since=NOON + 30 * 86_400)
    assert fire.due == NOON
    assert fire.note.startswith("30 d late")
    assert starts(task, now=NOON + HOUR, attempts=[a_run(task, NOON)]) == ()


def test_no_storm_after_a_long_time():
    tasks = [a_task(f"t{number}", Every(seconds=60), since=NOON - 999) for number in range(30)]
    decision = decide(state(*tasks, now=NOON + 400 * 86_400, awake_since=NOON + 400 * 86_400), RULES)
    assert len(decision.start) == 2
    assert "or more" in decision.start[0].note


def test_what_comes_due_while_the_task_runs_fires_once_afterwards():
    task = a_task("a", Every(seconds=60), since=NOON)
    going = a_run(task, NOON + 60, RunStatus.RUNNING, ended_at=None)
    decision = decide(state(task, now=NOON + 300, attempts=[going], running=[("local", "a")], awake_since=NOON), RULES)
    assert decision.start == ()
    ended = attrs.evolve(going, status=RunStatus.DONE, ended_at=iso(NOON + 410))
    (fire,) = starts(task, now=NOON + 410, attempts=[ended], awake_since=NOON)
    assert (fire.due, fire.skipped) == (NOON + 360, 4)
    assert "the run before was still going" in fire.note


def test_a_manual_run_keeps_the_task_from_starting():
    task = a_task("a", HOURLY, since=NOON - 10)
    assert starts(task, now=NOON, running=[("local", "a")]) == ()


def test_the_longest_waiting_goes_first_and_places_are_shared_by_users():
    old = a_task("z", Every(seconds=HOUR), since=NOON - HOUR - 5)
    same = [a_task(name, HOURLY, since=NOON - 10) for name in "abc"]
    other = a_task("q", HOURLY, since=NOON - 10, user=UserId("other"))
    fires = starts(*same, other, old, now=NOON)
    assert [fire.task.name for fire in fires] == ["z", "q"]
    decision = decide(state(*same, now=NOON, running=[("other", "x")]), RULES)
    assert [fire.task.name for fire in decision.start] == ["a"]


def test_a_task_that_cannot_be_understood_stops_no_other():
    damaged = a_task("damaged", HOURLY, since=NOON - 10, anchor_at="yesterday")
    decision = decide(state(damaged, a_task("a", HOURLY, since=NOON - 10), now=NOON), RULES)
    assert [fire.task.name for fire in decision.start] == ["a"]
    assert decision.unusable == (("local", "damaged"),)


def test_a_disabled_task_is_silent():
    task = a_task("a", HOURLY, since=NOON - 10, enabled=False)
    assert starts(task, now=NOON) == ()
    assert next_fire(task, (), now=NOON) is None


def test_fire_times_up_to_the_anchor_are_over():
    task = a_task("a", HOURLY, since=NOON)
    assert starts(task, now=NOON + 1) == ()
    assert next_fire(task, (), now=NOON + 1) == NOON + HOUR


def failed(task, due, attempt=1, **more):
    more = {"error": "llm_unreachable", "attempt": attempt, **more}
    return a_run(task, due, RunStatus.FAILED, **more)


def test_failures_are_tried_again_with_growing_pauses():
    task = a_task("a", Cron(expression="0 12 * * *", zone="UTC"), since=NOON - 10)
    attempts, ended, pauses = [], NOON + 1, []
    while True:
        attempts.append(failed(task, NOON, len(attempts) + 1, ended_at=iso(ended)))
        decision = decide(state(task, now=ended, attempts=attempts), SubagentsConfig(max_concurrent=2, retries=3))
        assert decision.start == ()
        later = ended
        while later < NOON + 2 * HOUR:
            decision = decide(state(task, now=later, attempts=attempts), RULES)
            if decision.start:
                break
            later = decision.wake_at
        if not decision.start:
            break
        (fire,) = decision.start
        assert (fire.due, fire.attempt) == (NOON, len(attempts) + 1)
        assert "llm_unreachable" in fire.note
        pauses.append(later - ended)
        ended = later + 1
    assert pauses == [60, 120, 240]


def test_a_retry_never_passes_the_next_fire_time():
    task = a_task("a", Every(seconds=100), since=NOON - 100)
    one = failed(task, NOON, ended_at=iso(NOON + 50))
    decision = decide(state(task, now=NOON + 99, attempts=[one]), RULES)
    assert decision.start == ()
    assert decision.wake_at == NOON + 100
    (fire,) = starts(task, now=NOON + 110, attempts=[one])
    assert (fire.due, fire.attempt) == (NOON + 100, 1)


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (RunStatus.FAILED, {"error": "llm_refused"}),
        (RunStatus.FAILED, {"error": "llm_unreachable", "details": {"retryable": False}}),
        (RunStatus.FAILED, {"error": "llm_unreachable", "delivered": 1}),
        (RunStatus.TIMED_OUT, {}),
        (RunStatus.CANCELLED, {}),
        (RunStatus.REFUSED, {"error": "limit_task_tokens"}),
        (RunStatus.INTERRUPTED, {}),
        (RunStatus.SILENT, {}),
    ],
)
def test_what_is_not_tried_again(status, more):
    task = a_task("a", HOURLY, since=NOON - 10)
    assert starts(task, now=NOON + 1800, attempts=[a_run(task, NOON, status, **more)]) == ()


def test_a_provider_error_that_may_pass_is_tried_again():
    task = a_task("a", HOURLY, since=NOON - 10)
    one = failed(task, NOON, error="llm_refused", details={"retryable": True})
    assert starts(task, now=NOON + 1800, attempts=[one])


def test_a_changed_task_is_not_tried_again():
    task = a_task("a", HOURLY, since=NOON + 10)
    assert starts(task, now=NOON + 1800, attempts=[failed(task, NOON)]) == ()


def test_a_one_shot_that_was_interrupted_is_tried_once():
    task = a_task("a", At(instant=iso(NOON)), since=NOON - HOUR)
    one = a_run(task, NOON, RunStatus.INTERRUPTED)
    (fire,) = starts(task, now=NOON + 30, attempts=[one])
    assert (fire.due, fire.attempt) == (NOON, 2)
    assert "second attempt" in fire.note
    two = a_run(task, NOON, RunStatus.INTERRUPTED, attempt=2)
    assert starts(task, now=NOON + 30, attempts=[one, two]) == ()
    assert starts(task, now=NOON + 30, attempts=[attrs.evolve(one, delivered=1)]) == ()
    assert not repeats_after_interruption([])


def test_a_failure_before_a_clock_went_back_is_tried_at_once():
    task = a_task("a", At(instant=iso(NOON)), since=NOON - HOUR)
    one = failed(task, NOON, ended_at=iso(NOON + 1000 * HOUR))
    assert starts(task, now=NOON + 5, attempts=[one])


def test_a_task_from_a_clock_that_was_ahead_goes_on():
    """Made in 2030 by a wrong clock; the clock is right again."""
    task = a_task("a", HOURLY, since=NOON + 40_000 * HOUR)
    assert starts(task, now=NOON + 1, awake_since=NOON + 0.5) == ()
    (fire,) = starts(task, now=NOON + HOUR, awake_since=NOON + 0.5)
    assert fire.due == NOON + HOUR


def test_runs_of_a_clock_that_was_ahead_do_not_hold_up_a_task():
    task = a_task("a", HOURLY, since=NOON - 10)
    simulation = Simulation([task], now=NOON, rules=RULES)
    simulation.wake()
    for now in (NOON + 1000 * HOUR, NOON + 60, NOON + HOUR, NOON + 1000 * HOUR, NOON + 1001 * HOUR):
        simulation.now = now
        simulation.wake()
    assert [(fire.due - NOON) / HOUR for _, fire in simulation.fired] == [0, 1000, 1, 1001]
