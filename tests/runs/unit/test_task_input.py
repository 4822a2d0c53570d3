"""Making and changing tasks from raw input."""

import contextlib

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaw.actor.clock import from_iso
from klaw.domain.names import LOCAL_USER
from klaw.domain.task import At, Cron, Every, Task
from klaw.errors import TaskError
from klaw.runs.task_input import SubagentOrder, TaskInput, draft, edit, subagent_order

NOW = from_iso("2026-11-22T12:00:00.500Z")
LATER = from_iso("2026-11-25T08:00:00Z")
RAW = {"name": "news", "cron": "0 9 * * *", "message": "Сводка новостей, please"}
PROVIDERS = {"local", "cloud"}


def made(raw=None, **more) -> Task:
    raw = {**RAW, **more} if raw is None else raw
    return draft(raw, user=LOCAL_USER, now=NOW, default_zone="Europe/Moscow", providers=PROVIDERS)


def changed(task, now=LATER, **raw) -> Task:
    return edit(task, raw, now=now, default_zone="Europe/Moscow", providers=PROVIDERS)


def problems(action) -> dict[str, str]:
    with pytest.raises(TaskError) as raised:
        action()
    return {problem.path: problem.message for problem in raised.value.problems}


def test_a_task_with_defaults():
    assert made() == Task(
        user=LOCAL_USER,
        name="news",
        trigger=Cron(expression="0 9 * * *", zone="Europe/Moscow"),
        message="Сводка новостей, please",
        created_at="2026-11-22T12:00:00.500Z",
        updated_at="2026-11-22T12:00:00.500Z",
        anchor_at="2026-11-22T12:00:00.500Z",
    )


def test_a_task_with_everything():
    task = made(
        zone="Europe/Berlin",
        model="cloud/big",
        injectInto="Дом",
        enabled=False,
        timeout="5m",
        maxTokens="5000",
        dailyTokens=20_000,
    )
    assert (task.trigger.zone, task.model, task.inject_into, task.enabled) == (
        "Europe/Berlin",
        "cloud/big",
        "Дом",
        False,
    )
    assert (task.timeout_s, task.max_tokens, task.daily_tokens) == (300, 5000, 20_000)


def test_intervals_and_one_shots():
    assert made({"name": "a", "message": "x", "every": "2h"}).trigger == Every(seconds=7200)
    task = made({"name": "a", "message": "x", "at": "2026-12-24T18:00", "zone": "Europe/Berlin"})
    assert task.trigger == At(instant="2026-12-24T17:00:00.000Z", zone="Europe/Berlin")
    assert task.anchor_at == "2026-11-22T12:00:00.500Z"


def test_a_time_without_a_zone_is_in_the_one_that_is_usual():
    """26.C4: the configured one; of a task that is changed its own."""
    raw = {"name": "a", "message": "x", "at": "2026-12-24T09:00"}
    task = draft(raw, user=LOCAL_USER, now=NOW, default_zone="Europe/Riga")
    assert task.trigger == At(instant="2026-12-24T07:00:00.000Z", zone="Europe/Riga")
    moved = edit(task, {"at": "2026-12-25T09:00"}, now=NOW, default_zone="UTC")
    assert moved.trigger == At(instant="2026-12-25T07:00:00.000Z", zone="Europe/Riga")


def test_null_and_empty_are_not_given():
    """Models fill what they do not use."""
    assert made(every="", at=None, model="", injectInto="", timeout=None, clear="", zone="") == made()


def test_a_one_shot_in_the_past_only_on_request():
    raw = {"name": "a", "message": "x", "at": "2026-11-01T00:00Z"}
    assert "is over" in problems(lambda: made(raw))["at"]
    task = made({**raw, "now": True})
    assert task.trigger == At(instant="2026-11-22T12:00:00.000Z")
    assert task.anchor_at < task.trigger.instant


@pytest.mark.parametrize(
    "name",
    ["", "a" * 65, "../x", "a/b", "..", "Новости", "UPPER", "-a", "a b", "a\x00", "a\n", "heartbeat", 7, ["a"], True],
)
def test_bad_names(name):
    assert list(problems(lambda: made(name=name))) == ["name"]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("", "required"),
        ("  \n ", "not be empty"),
        ("x" * 100_000, "got 100000"),
        ("я" * 8193, "got 16386"),
        ("a\x00b", "NUL"),
        ("a\x1b[2Jb", "control"),
        ("\ud800", "surrogate"),
        (5, "text"),
        ({"a": 1}, "text"),
    ],
)
def test_bad_messages(message, says):
    assert says in problems(lambda: made(message=message))["message"]


def test_the_longest_message_is_taken():
    assert len(made(message="я" * 8192).message.encode()) == 16_384


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "big"),
        ("model", "other/big"),
        ("model", "cloud/" + "x" * 300),
        ("model", "cloud/a\x00"),
        ("model", 5),
        ("injectInto", "other:home"),
        ("injectInto", "../../etc"),
        ("injectInto", "x" * 65),
        ("injectInto", 5),
        ("timeout", 0),
        ("timeout", "2d"),
        ("timeout", "soon"),
        ("timeout", True),
        ("maxTokens", 0),
        ("maxTokens", -1),
        ("maxTokens", "many"),
        ("maxTokens", 1.5),
        ("maxTokens", True),
        ("dailyTokens", 10**12),
        ("enabled", "yes"),
        ("enabled", 1),
        ("zone", "Mars/Phobos"),
        ("cron", "61 * * * *"),
        ("now", True),
        ("clear", ["model"]),
        ("injectinto", "home"),
        ("user", "other"),
    ],
)
def test_each_bad_field_is_named(field, value):
    assert list(problems(lambda: made(**{field: value}))) == [field]


def test_all_bad_fields_are_named_at_once():
    raw = {"name": "../x", "cron": "61 * * * *", "zone": "Mars", "model": "x", "timeout": -1, "colour": "red"}
    assert set(problems(lambda: made(raw))) == {*raw, "message"}


def test_exactly_one_trigger():
    assert "exactly one" in problems(lambda: made({"name": "a", "message": "x"}))["cron"]
    found = problems(lambda: made(every="2h"))
    assert set(found) == {"cron", "every"}
    assert "got cron, every" in found["cron"]
    assert set(problems(lambda: made({"name": "a", "message": "x", "every": "2h", "zone": "UTC"}))) == {"zone"}


def test_a_change_touches_given_fields_only():
    task = made(injectInto="home", model="cloud/big")
    new = changed(task, message="other")
    assert new == attrs.evolve(task, message="other", updated_at="2026-11-25T08:00:00.000Z")
    assert changed(task) is task
    assert changed(task, name="news", message=task.message, cron="0 9 * * *", enabled=True) is task


def test_the_anchor_moves_with_the_trigger_and_when_enabled():
    task = made()
    for new in (changed(task, cron="0 10 * * *"), changed(task, zone="UTC"), changed(task, every="2h")):
        assert new.anchor_at == "2026-11-25T08:00:00.000Z"
    assert changed(task, cron="0 10 * * *").trigger.zone == "Europe/Moscow"
    off = changed(task, enabled=False)
    assert off.anchor_at == task.anchor_at
    assert changed(off, enabled=True).anchor_at == "2026-11-25T08:00:00.000Z"


def test_fields_are_cleared_by_name():
    task = made(injectInto="home", model="cloud/big", maxTokens=5, dailyTokens=5, timeout=5)
    new = changed(task, clear=["injectInto", "maxTokens"])
    assert (new.inject_into, new.max_tokens, new.model) == (None, None, "cloud/big")
    assert changed(task, clear="model, timeout").timeout_s is None
    assert set(problems(lambda: changed(task, clear=["message"]))) == {"clear"}
    assert set(problems(lambda: changed(task, clear=5))) == {"clear"}
    assert set(problems(lambda: changed(task, clear=["model"], model="cloud/x"))) == {"model"}


def test_a_name_cannot_change():
    assert set(problems(lambda: changed(made(), name="other"))) == {"name"}


def test_a_zone_needs_a_clock():
    task = made({"name": "a", "message": "x", "every": "2h"})
    assert set(problems(lambda: changed(task, zone="UTC"))) == {"zone"}


def test_enabling_a_one_shot_that_is_over():
    task = attrs.evolve(made({"name": "a", "message": "x", "at": "2026-11-23T00:00Z"}), enabled=False)
    assert set(problems(lambda: changed(task, enabled=True))) == {"at"}
    new = edit(task, {"enabled": True, "now": True}, now=LATER, default_zone="UTC")
    assert new.trigger == At(instant="2026-11-25T08:00:00.000Z")
    assert new.anchor_at < new.trigger.instant


def test_a_spawn_request():
    wanted = subagent_order(
        {"name": "dig", "message": "find it", "model": "cloud/x", "injectInto": "home"}, providers=PROVIDERS
    )
    assert wanted == SubagentOrder(name="dig", message="find it", model="cloud/x", inject_into="home")
    bad = problems(
        lambda: subagent_order({"name": "../x", "injectInto": "a:b", "cron": "* * * * *"}, providers=PROVIDERS)
    )
    assert set(bad) == {"name", "message", "injectInto", "cron"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(raw=st.dictionaries(st.sampled_from(sorted(TaskInput({}).known)) | st.text(max_size=8), _JSON, max_size=8))
@settings(max_examples=300, deadline=None)
def test_any_input_makes_a_task_or_a_task_error(raw):
    """No other error, whatever comes."""
    with contextlib.suppress(TaskError):
        made({**RAW, **raw})
    with contextlib.suppress(TaskError):
        edit(made(), raw, now=LATER, default_zone="UTC")
