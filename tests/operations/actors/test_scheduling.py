"""Tasks and runs by the admin socket's commands, with the real scheduler and store; there is no model, so runs fail."""

from typing import Any

import pytest

from klaw.actor.clock import iso
from klaw.app.app import App
from klaw.cli.output import written
from klaw.operations import schedule
from klaw.operations.operation import OperationError
from klaw.operations.perform import read_call
from klaw.runs import service
from tests.support.admin import Commands
from tests.support.waiting import until

DAILY = {"cron": "0 9 * * *", "zone": "Europe/Berlin"}
TASK_FIELDS = {
    "user", "name", "trigger", "enabled", "zone", "next_fires", "message", "model", "inject_into", "timeout_s",
    "max_tokens", "daily_tokens", "reminder", "created_at", "updated_at", "running", "last_run", "warning",
}  # fmt: skip
RUN_FIELDS = {
    "id", "user", "task", "kind", "status", "due", "attempt", "started_at", "ended_at", "model", "inject_into",
    "prompt_tokens", "completion_tokens", "delivered", "error", "note", "parent",
}  # fmt: skip


def asked(command: str, **args: Any) -> Any:
    """The request as the socket reads it."""
    given = {name: value for name, value in args.items() if value is not None}
    return read_call(command, given)


async def add(commands: Commands, name: str = "day", user: str | None = None, **fields: Any) -> dict[str, Any]:
    args = {"fields": {"name": name, "message": "Подведи итоги дня", **DAILY, **fields}, "user": user}
    given = {name: value for name, value in args.items() if value is not None}
    return (await commands.run(asked("schedule_add", **given)))["task"]


async def refused(commands: Commands, command: str, **args: Any) -> OperationError:
    with pytest.raises(OperationError) as caught:
        await commands.run(asked(command, **args))
    return caught.value


async def answered(commands: Commands, request: Any, wanted: Any) -> Any:
    """Ask until the answer is as wanted. Returns it."""

    async def ask() -> Any:
        answer = await commands.run(request)
        return answer if wanted(answer) else None

    return await until(ask)


async def run_to_its_end(commands: Commands, name: str, user: str | None = None) -> dict[str, Any]:
    run = (await commands.run(asked("schedule_run", name=name, user=user)))["run"]
    shown = await answered(
        commands, asked("run_show", run=run["id"], user=user), lambda answer: answer["run"]["ended_at"]
    )
    return shown["run"]


async def test_a_one_time_task_keeps_the_zone_of_its_time(commands: Commands) -> None:
    once = {"cron": None, "at": "2060-12-24T18:00"}
    made = await add(commands, **once, zone="Europe/Berlin")
    assert (made["zone"], made["next_fires"]) == ("Europe/Berlin", ["2060-12-24T18:00:00+01:00"])


async def test_a_task_is_made_listed_changed_and_removed(commands: Commands) -> None:
    made = await add(commands, injectInto="Дом")
    assert set(made) == TASK_FIELDS
    assert made["trigger"] == {
        "kind": "cron",
        "expression": "0 9 * * *",
        "zone": "Europe/Berlin",
        "shown": "cron 0 9 * * * Europe/Berlin",
        "repeat": "every day",
    }
    assert len(made["next_fires"]) == 3
    assert all(moment[10:19] == "T09:00:00" and moment[19:] in ("+01:00", "+02:00") for moment in made["next_fires"])
    assert "there is no chat дом" in made["warning"].lower()
    listed = await commands.run(asked("schedule_list"))
    assert listed["user"] == "local"
    assert [task["name"] for task in listed["tasks"]] == ["day"]
    changed = await commands.run(asked("schedule_edit", name="day", fields={"every": "2h", "clear": ["injectInto"]}))
    assert (changed["task"]["trigger"]["shown"], changed["task"]["inject_into"]) == ("every 2h", None)
    limited = await commands.run(asked("schedule_edit", name="day", fields={"timeout": "5m", "maxTokens": "100"}))
    assert (limited["task"]["timeout_s"], limited["task"]["max_tokens"]) == (300, 100)
    emptied = await commands.run(asked("schedule_edit", name="day", fields={"timeout": "", "maxTokens": ""}))
    assert (emptied["task"]["timeout_s"], emptied["task"]["max_tokens"]) == (None, None)
    for clear, left in ((None, 100), ("max-tokens, daily-tokens", None)):
        await commands.run(asked("schedule_edit", name="day", fields={"timeout": "5m", "maxTokens": "100"}))
        both = await commands.run(asked("schedule_edit", name="day", fields={"timeout": "", "clear": clear}))
        assert (both["task"]["timeout_s"], both["task"]["max_tokens"]) == (None, left)
    off = (await commands.run(asked("schedule_enable", name="day", enabled=False)))["task"]
    assert (off["enabled"], off["next_fires"]) == (False, [])
    assert (await commands.run(asked("schedule_enable", name="day")))["task"]["enabled"]
    assert await commands.run(asked("schedule_remove", name="day")) == {"removed": {"user": "local", "name": "day"}}
    assert (await commands.run(asked("schedule_list")))["tasks"] == []


async def test_a_task_has_a_history_and_goes_back(commands: Commands) -> None:
    await add(commands)
    await commands.run(asked("schedule_edit", name="day", fields={"every": "2h", "message": "Что нового?"}))
    await commands.run(asked("schedule_remove", name="day"))
    told = await commands.run(asked("task_history", task="day"))
    versions = [
        each["task"] and (each["task"]["trigger"]["shown"], each["task"]["message"]) for each in told["changes"]
    ]
    old, new = ("cron 0 9 * * * Europe/Berlin", "Подведи итоги дня"), ("every 2h", "Что нового?")
    assert versions == [old, new, None]
    lines = written(schedule.TASKS.history_lines(told))
    assert lines[0].split() == ["entry", "at", "task", "runs", "asks"]
    assert [line.split()[-1] for line in lines[1:]] == ["дня", "нового?", "(removed)"]
    back = (await commands.run(asked("task_undo", task="day")))["task"]
    assert (back["trigger"]["shown"], back["running"]) == ("every 2h", False)
    first = told["changes"][0]["entry"]
    back = (await commands.run(asked("task_undo", task="day", entry=first)))["task"]
    assert (back["trigger"]["shown"], back["message"], len(back["next_fires"])) == (*old, 3)
    assert (await refused(commands, "task_undo", task="day", entry=999)).code == "cannot_undo"
    await add(commands, "2024-report")
    for user, name in (("anna", "day"), ("local", "never"), ("local", "2024")):  # a name is not shortened
        for operation in ("task_history", "task_undo"):
            assert (await refused(commands, operation, task=name, user=user)).code == "unknown_task"


async def test_a_removed_task_comes_back_only_where_there_is_room(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_TASKS", 1)
    await add(commands)
    await commands.run(asked("schedule_edit", name="day", fields={"message": "Что нового?"}))
    assert (await commands.run(asked("task_undo", task="day")))["task"]["message"] == "Подведи итоги дня"
    await commands.run(asked("schedule_remove", name="day"))
    await add(commands, "night")
    error = await refused(commands, "task_undo", task="day")
    assert (error.code, error.problems[0].path) == ("bad_task", "name")
    assert "there are 1 tasks already; remove one first" in str(error)


async def test_every_wrong_field_is_named(commands: Commands) -> None:
    raw = {"name": "a/b", "message": "", "cron": "61 * * * *", "zone": "Mars/Base", "timeout": "soon", "crom": 1}
    error = await refused(commands, "schedule_add", fields=raw)
    assert error.code == "bad_task"
    assert {problem.path for problem in error.problems} == {"name", "message", "cron", "zone", "timeout", "crom"}


async def test_what_is_not_there_is_said(commands: Commands) -> None:
    assert (await refused(commands, "schedule_remove", name="no")).code == "unknown_task"
    assert (await refused(commands, "schedule_run", name="../x")).code == "unknown_task"
    assert (await refused(commands, "schedule_edit", name="no", fields={"every": "1h"})).code == "unknown_task"
    assert (await refused(commands, "schedule_edit", name="day", fields={})).code == "bad_task"
    assert (await refused(commands, "run_show", run="no")).code == "unknown_run"
    assert (await refused(commands, "run_cancel", run="no")).code == "unknown_run"
    assert (await refused(commands, "runs", before="no")).code == "unknown_run"
    wrong = await refused(commands, "runs", status="odd")
    assert (wrong.code, str(wrong)[:12]) == ("bad_args", "args.status:")
    assert (await refused(commands, "schedule_list", user="A/B")).code == "bad_args"
    await add(commands)
    with pytest.raises(OperationError) as caught:
        await add(commands)
    assert caught.value.code == "task_exists"


async def test_runs_are_listed_in_pages_and_shown(commands: Commands) -> None:
    await add(commands)
    done = [await run_to_its_end(commands, "day") for _ in range(3)]
    assert all(run["status"] == "failed" and run["kind"] == "manual" and run["error"] for run in done)
    assert done[0]["message"] == "Подведи итоги дня"
    first = await commands.run(asked("runs", limit=2))
    assert [run["id"] for run in first["runs"]] == [done[2]["id"], done[1]["id"]]
    assert set(first["runs"][0]) == RUN_FIELDS
    second = await commands.run(asked("runs", limit=2, before=first["next"], task="day"))
    assert ([run["id"] for run in second["runs"]], second["next"]) == ([done[0]["id"]], None)
    assert (await commands.run(asked("runs", status="done")))["runs"] == []
    over = await refused(commands, "run_cancel", run=done[0]["id"])
    assert (over.code, "failed" in str(over)) == ("run_over", True)


async def test_a_user_sees_nothing_of_another(commands: Commands) -> None:
    await add(commands, user="anna")
    run = await run_to_its_end(commands, "day", user="anna")
    assert (await commands.run(asked("schedule_list")))["tasks"] == []
    assert (await commands.run(asked("runs")))["runs"] == []
    assert (await refused(commands, "run_show", run=run["id"])).code == "unknown_run"
    assert (await refused(commands, "run_cancel", run=run["id"])).code == "unknown_run"
    assert (await refused(commands, "schedule_run", name="day")).code == "unknown_task"
    assert (await refused(commands, "schedule_enable", name="day", enabled=False)).code == "unknown_task"
    assert (await refused(commands, "runs", before=run["id"])).code == "unknown_run"


async def test_the_status_tells_of_tasks(app: App, commands: Commands) -> None:
    await add(commands)
    await add(commands, name="off", enabled=False)
    await add(commands, name="soon", cron=None, zone=None, every="1m")
    await run_to_its_end(commands, "day")
    tasks = (await answered(commands, asked("status"), lambda answer: answer["tasks"]["failing"]))["tasks"]
    assert (tasks["count"], tasks["enabled"], tasks["running"], tasks["queued"]) == (3, 2, 0, 0)
    assert (tasks["next"]["task"], tasks["next"]["user"]) == ("soon", "local")
    assert tasks["next"]["at"] > iso(app.core.clock.now())
    assert [(each["user"], each["task"]) for each in tasks["failing"]] == [("local", "day")]
    await commands.run(asked("schedule_remove", name="day"))
    await answered(commands, asked("status"), lambda answer: not answer["tasks"]["failing"])


async def test_the_next_times_of_a_schedule_are_shown_without_a_task(commands: Commands) -> None:
    shown = await commands.run(asked("schedule_preview", **DAILY))
    assert len(shown["next_fires"]) == 5
    assert all(moment[10:19] == "T09:00:00" for moment in shown["next_fires"])
    assert shown["zone"] == "Europe/Berlin"
    once = await commands.run(asked("schedule_preview", at="2001-01-01T00:00:00Z", now=True))
    assert len(once["next_fires"]) == 1
    for field, value in {"cron": "61 * * * *", "every": "5s", "at": "tomorrow"}.items():
        error = await refused(commands, "schedule_preview", **{field: value})
        assert (error.code, [problem.path for problem in error.problems]) == ("bad_task", [field])
    assert (await refused(commands, "schedule_preview", cron="0 9 * * *", zone="Mars/Base")).problems[0].path == "zone"
    assert (await refused(commands, "schedule_preview")).code == "bad_task"
    assert (await commands.run(asked("schedule_list")))["tasks"] == []


async def test_what_was_said_in_a_run_is_its_users_alone(commands: Commands) -> None:
    await add(commands, user="anna")
    run = await run_to_its_end(commands, "day", user="anna")
    said = await commands.run(asked("run_transcript", run=run["id"], user="anna"))
    assert (said["run"], said["cut"]) == (run["id"], False)
    assert (await refused(commands, "run_transcript", run=run["id"])).code == "unknown_run"
