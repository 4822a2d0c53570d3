"""Tasks and runs as text for the terminal. Pure."""

import datetime as dt
from typing import Any

from klaw.cli.admin_call import line, table
from klaw.domain.text import plural
from klaw.domain.zones import clock_text

_TASK_HEAD = ["task", "fires", "next", "chat", "last run"]
_RUN_HEAD = ["run", "task", "kind", "status", "started", "took", "tokens", "sent", "note"]
_RUN_NUMBERS = frozenset({5, 6, 7})
MAX_NOTE = 60


def task_table(tasks: list[dict[str, Any]]) -> list[str]:
    """Tasks, one a line, and what is odd about them."""
    if not tasks:
        return ["no tasks: `klaw schedule add` makes one"]
    rows = [_TASK_HEAD]
    for task in tasks:
        last = task["last_run"]
        rows.append(
            [
                line(task["name"]),
                line(task["trigger"]["shown"]),
                _next(task),
                line(task["inject_into"] or "-"),
                f"{_status(last)}  {minute(last['started_at'])}" if last else "-",
            ]
        )
    notes = [f"{task['name']}: {task['warning']}" for task in tasks if task["warning"]]
    return [*table(rows), *map(line, notes)]


def task_lines(task: dict[str, Any]) -> list[str]:
    """One task: when it fires next, and what is odd about it."""
    rows = [
        ["task", task["name"] if task["enabled"] else f"{task['name']} (disabled)"],
        ["fires", task["trigger"]["shown"]],
        *[["next" if not place else "", clock_text(moment)] for place, moment in enumerate(task["next_fires"])],
        *([["next", "never"]] if task["enabled"] and not task["next_fires"] else []),
        [
            "chat",
            task["inject_into"]
            or f"none: see its results with `klaw runs --task {task['name']}` (or --inject-into CHAT)",
        ],
        *[
            [word, f"{task[name]}{unit}"]
            for word, name, unit in (
                ("model", "model", ""),
                ("timeout", "timeout_s", " s"),
                ("tokens of a run", "max_tokens", ""),
                ("tokens of a day", "daily_tokens", ""),
            )
            if task[name] is not None
        ],
        *([["warning", task["warning"]]] if task["warning"] else []),
    ]
    return table([[name, line(text)] for name, text in rows])


def run_table(runs: list[dict[str, Any]]) -> list[str]:
    """Runs, one a line."""
    if not runs:
        return ["no runs"]
    rows = [_RUN_HEAD]
    for run in runs:
        note = line(run["note"] or run["error"] or "")
        rows.append(
            [
                run["id"],
                line(run["task"]),
                run["kind"],
                _status(run),
                minute(run["started_at"]),
                took(run),
                str(run["prompt_tokens"] + run["completion_tokens"]),
                str(run["delivered"]),
                note if len(note) <= MAX_NOTE else f"{note[: MAX_NOTE - 1]}…",
            ]
        )
    return table(rows, right=_RUN_NUMBERS)


def run_lines(run: dict[str, Any]) -> list[str]:
    """One run with what was asked and what came of it."""
    rows = [
        ["run", run["id"]],
        ["task", run["task"]],
        ["kind", run["kind"] + (f", attempt {run['attempt']}" if run["attempt"] > 1 else "")],
        ["status", _status(run) + (f" ({run['error']})" if run["error"] else "")],
        *([["note", run["note"]]] if run["note"] else []),
        ["due", run["due"]],
        ["started", run["started_at"]],
        ["ended", f"{run['ended_at']}, took {took(run)}" if run["ended_at"] else "-"],
        ["model", run["model"]],
        ["tokens", f"{run['prompt_tokens']} of prompts, {run['completion_tokens']} of answers"],
        [
            "chat",
            f"{run['inject_into']}, {plural(run['delivered'], 'message')} sent"
            if run["inject_into"]
            else "none: the result stands here",
        ],
        *([["started by", f"run {run['parent']}"]] if run["parent"] else []),
    ]
    head = table([[name, line(text)] for name, text in rows])
    asked, came = _indented(run["message"]), _indented(run["result"])
    return [*head, "", "request", *asked, *(["", "result", *came] if came else [])]


def minute(moment: str) -> str:
    """An ISO time in UTC, to the minute."""
    return f"{moment[:10]} {moment[11:16]}Z"


def took(run: dict[str, Any]) -> str:
    """How long a run took, in seconds; empty while it goes on."""
    if run["ended_at"] is None:
        return ""
    begin, end = (dt.datetime.fromisoformat(run[name]) for name in ("started_at", "ended_at"))
    return f"{max(0.0, (end - begin).total_seconds()):.1f} s"


def _next(task: dict[str, Any]) -> str:
    if not task["enabled"]:
        return "disabled"
    if task["running"]:
        return "runs now"
    return clock_text(task["next_fires"][0]) if task["next_fires"] else "never"


def _status(run: dict[str, Any]) -> str:
    return str(run["status"]).replace("_", " ")


def _indented(text: str) -> list[str]:
    from klaw.client.text_width import harmless

    return [f"    {each}".rstrip() for each in harmless(text).split("\n")] if text else []
