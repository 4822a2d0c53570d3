"""Ten tasks over simulated months in which clocks change, against a count over all minutes."""

import random
from collections import Counter
from functools import cache

import pytest

from klaw.actor.clock import from_iso, iso
from klaw.config.schema import SubagentsConfig
from klaw.domain.task import At, Cron, Every, Task
from klaw.runs import due
from klaw.runs.due import Clocks
from tests.support.runs.cron_by_minutes import fire_times
from tests.support.runs.schedule import Simulation, a_task

RULES = SubagentsConfig(max_concurrent=2, retries=3)
DAY = 86_400

MONTHS = {
    "spring": ("2027-03-06T10:17:33Z", "2027-04-06T10:00:00Z"),
    "autumn": ("2027-10-12T10:17:33Z", "2027-11-12T10:00:00Z"),
}
"""New York's and Berlin's clocks change in both, Lord Howe's in spring too."""

CRONS = {
    "berlin-night": ("30 2 * * *", "Europe/Berlin"),
    "berlin-work": ("0 9 * * 1-5", "Europe/Berlin"),
    "berlin-quarters": ("*/15 1-4 * * *", "Europe/Berlin"),
    "new-york": ("15 1,2 * * *", "America/New_York"),
    "new-york-hours": ("45 * * * *", "America/New_York"),
    "lord-howe": ("45 1 * * *", "Australia/Lord_Howe"),
    "kolkata": ("0 */3 * * *", "Asia/Kolkata"),
}


@pytest.fixture(autouse=True)
def look_seldom(monkeypatch):
    """The scheduler looks every minute; ten times fewer looks show the same here."""
    monkeypatch.setattr(due, "MAX_SLEEP_S", 600.0)


def the_tasks(start: float) -> list[Task]:
    crons = [
        a_task(name, Cron(expression=expression, zone=zone), since=start) for name, (expression, zone) in CRONS.items()
    ]
    return [
        *crons,
        a_task("every-2h", Every(seconds=7200), since=start),
        a_task("every-25h", Every(seconds=90_000), since=start),
        a_task("once", At(instant=iso(int(start) + 20 * DAY)), since=start),
    ]


@cache
def expected(month: str) -> dict[str, list[int]]:
    """Fire times by name, counted minute by minute and interval by interval."""
    start, end = (int(from_iso(text)) for text in MONTHS[month])
    found = {name: list(fire_times(*cron, start, end)) for name, cron in CRONS.items()}
    found["every-2h"] = list(range(start + 7200, end + 1, 7200))
    found["every-25h"] = list(range(start + 90_000, end + 1, 90_000))
    found["once"] = [start + 20 * DAY]
    return found


def by_name(simulation: Simulation) -> dict[str, list[int]]:
    fired: dict[str, list[int]] = {}
    for _, fire in simulation.fired:
        fired.setdefault(fire.task.name, []).append(fire.due)
    return fired


@pytest.mark.parametrize("month", MONTHS)
def test_every_fire_time_is_right_and_none_comes_twice(month):
    """A scheduler that is always there starts each run at its time, or when a place is free."""
    start, end = (from_iso(text) for text in MONTHS[month])
    simulation = Simulation(the_tasks(start), now=start, rules=RULES)
    assert len(simulation.tasks) == 10
    while simulation.now <= end:
        decision = simulation.wake(longest_run=20)
        simulation.now = min(decision.wake_at, simulation.next_end())
    assert {
        name: [moment for moment in dues if moment <= end] for name, dues in by_name(simulation).items()
    } == expected(month)
    assert all(0 <= now - fire.due < 60 and fire.note is None for now, fire in simulation.fired)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("month", MONTHS)
def test_downtime_and_suspend_neither_repeat_nor_lose_a_fire_time(month, seed):
    """Odd waking times, long runs, crashes, days away: each expected time has its run, or is counted as skipped by the
    run of a later one that says so; the last one missed is never skipped."""
    start, end = (from_iso(text) for text in MONTHS[month])
    chance = random.Random(seed)
    simulation = Simulation(the_tasks(start), now=start, rules=RULES, seed=seed)
    while simulation.now <= end:
        decision = simulation.wake(longest_run=chance.choice([5, 600, 7200]))
        simulation.now = min(decision.wake_at, simulation.next_end()) + chance.choice([0, 0, 0.3, 20])
        if chance.random() < 0.004:
            simulation.now += chance.uniform(60, 4 * DAY)
            simulation.restart()
        elif chance.random() < 0.004:
            simulation.now += chance.uniform(60, 2 * DAY)  # asleep: the runs go on
            simulation.awake_since = simulation.now
    simulation.now = max(simulation.now, simulation.next_end())
    for name, times in expected(month).items():
        fires = [fire for _, fire in simulation.fired if fire.task.name == name and fire.attempt == 1]
        dues = [fire.due for fire in fires if fire.due <= end]
        assert len(set(dues)) == len(dues)
        assert set(dues) <= set(times)
        assert dues == sorted(dues)
        before = 0
        for fire in fires:
            if fire.due <= end:
                place = times.index(fire.due) + 1
                assert fire.skipped == place - before - 1
                assert not fire.skipped or "skipped" in fire.note
                before = place
    assert max(Counter(moment for moment, _ in simulation.fired).values()) <= RULES.max_concurrent


@pytest.mark.parametrize("seed", range(6))
def test_clocks_that_are_set_forward_and_back_repeat_nothing(seed):
    """The clock jumps by minutes, hours and days in both directions; real time goes on between."""
    start, _ = (from_iso(text) for text in MONTHS["spring"])
    end = start + 12 * DAY
    chance = random.Random(seed)
    simulation = Simulation(the_tasks(start), now=start, rules=RULES, seed=seed)
    right = {name: set(times) for name, times in expected("spring").items()}
    monotonic = 0.0
    watch = Clocks(wall=start, monotonic=monotonic)
    while monotonic < 12 * DAY:
        decision = simulation.wake(longest_run=5)
        step = min(decision.wake_at, simulation.next_end()) - simulation.now
        simulation.now += max(step, 0.0)
        monotonic += max(step, 0.0)
        if chance.random() < 0.003:
            jump = chance.choice([-1, 1]) * chance.choice([90, 1800, 3600, 7200, DAY])
            simulation.now = min(max(simulation.now + jump, start), end)
        jumped_s = watch.jumped_s(wall=simulation.now, monotonic=monotonic)
        if jumped_s:
            simulation.awake_since = simulation.now
    for name, dues in by_name(simulation).items():
        assert len(set(dues)) == len(dues)
        assert set(dues) <= right[name]
    assert by_name(simulation)["every-2h"]
