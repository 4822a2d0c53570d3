"""The actors of the server as a tree, and below them Trio's tasks with their stacks: where everything waits."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypedDict

import attrs

from klaw.domain.text import span
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Lines, Table
from klaw.operations.operation import Nothing, Noun, Scope

if TYPE_CHECKING:
    from trio.lowlevel import Task

    from klaw.actor.supervisor import ActorReport
    from klaw.llm.slots import SlotsReport
    from klaw.operations.answers import ActorNode, TrioTask

NOUN = Noun("actors", "show the parts of the server with their queues (docs/operations.md)")
TASKS = Noun("tasks", "show Trio's tasks")
ROOT = "supervisor"
GATEWAY = "gateway"
SLOTS = "llm.slots"
MAX_TASKS = 2000
"""Trio tasks shown; the rest is counted, because a snapshot is taken in one step, which must be short."""
MAX_FRAMES = 40
_COUNTS = ("depth", "high_water", "capacity", "handled", "failed", "dropped")
_HEAD = ["actor", "state", "since", "depth", "high", *_COUNTS[2:], "restarts", "last error", "activity"]


class Actors(TypedDict):
    now: float
    tree: "ActorNode"


class TrioTasks(TypedDict):
    task: "TrioTask | None"
    shown: int
    left_out: int


def _lines(answer: dict[str, Any]) -> Lines:
    rows = [_HEAD]
    _add(rows, answer["tree"], answer["now"], "", "")
    return [Table(rows, right=frozenset(range(2, 10)))]


def _add(rows: list[list[str]], node: dict[str, Any], now: float, lead: str, below: str) -> None:
    rows.append([lead + node["name"], *_cells(node, now)])
    children = node["children"]
    for place, child in enumerate(children, 1):
        last = place == len(children)
        _add(rows, child, now, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def _cells(node: dict[str, Any], now: float) -> list[str]:
    match node["kind"]:
        case "actor":
            box = node["mailbox"]
            counts = [str(box[name]) if box else "" for name in _COUNTS]
            activity = f"{node['activity']} ({_ago(node['activity_since'], now)})"
            more = [str(node["restarts"]), node["last_error"] or "", activity]
            return [node["state"], _ago(node["since"], now), *counts, *more]
        case "slots":
            queue = [str(node["waiting"]), str(node["high_water"]), "", str(node["granted"])]
            return ["", "", *queue, "", "", "", "", f"{node['busy']} of {node['total']} busy"]
        case "connection":
            hidden = ("name", "kind", "children", "id", "since")
            shown = [
                f"{name} {value}" for name, value in node.items() if name not in hidden and value not in (None, "")
            ]
            return ["open", _ago(node.get("since"), now), *[""] * 8, ", ".join(shown)]
        case _:
            return [""] * (len(_HEAD) - 1)


def _ago(moment: float | str | None, now: float) -> str:
    """How long ago it was: Unix seconds or ISO text."""
    if moment is None:
        return ""
    return span(now - (dt.datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment))


@NOUN.operation("actors", Nothing, cli="", show=_lines, scope=Scope.OPERATOR, deadline_s=2, watch=True)
async def actors(_asked: Nothing, _caller: Caller, parts: Parts) -> Actors:
    """Show the tree of actors with their queues, restarts and last errors."""
    open_now = parts.listeners.connections()
    return {
        "now": parts.clock.now(),
        "tree": actor_tree(parts.core.supervisor.report(), parts.llm.slots.report(), open_now),
    }


@TASKS.operation("tasks", Nothing, scope=Scope.OPERATOR, deadline_s=2)
async def tasks(_asked: Nothing, _caller: Caller, _parts: Parts) -> TrioTasks:
    """Show all Trio tasks, from the root down, with their stacks: places in the code only, no values.

    Every task has ``name``, ``stack`` (``file:line function``, outermost first) and ``nurseries``, each a list of
    tasks. ``shown`` and ``left_out`` count the tasks.
    """
    import trio

    root, count = trio.lowlevel.current_root_task(), {"shown": 0}
    told = _task(root, count) if root else None
    return {
        "task": told,
        "shown": count["shown"],
        "left_out": trio.lowlevel.current_statistics().tasks_living - count["shown"],
    }


# -- the trees --------------------------------------------------------------------------------------------------------


def actor_tree(
    reports: Sequence["ActorReport"], slots: "SlotsReport | None", connections: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Nest actors by their ``parent``, else by the dotted prefix of their name; connections, each with an ``id``, hang
    below the gateway.

    Every node has ``name``, ``kind`` (actor, group, slots, connection) and ``children``; an actor also all of
    ``ActorReport``. A parent that is no actor (``chats``, ``store`` …) is a group, like the root.
    """
    nodes: dict[str, dict[str, Any]] = {}
    parents: dict[str, str | None] = {}

    def add(name: str, kind: str, parent: str | None, about: Mapping[str, Any]) -> None:
        nodes[name] = {"name": name, "kind": kind, **about, "children": []}
        parents[name] = parent

    for report in reports:
        about = {**attrs.asdict(report), "state": report.state.value}
        add(report.name, "actor", report.parent or _parent_of(report.name), about)
    if slots is not None:
        add(SLOTS, "slots", _parent_of(SLOTS), attrs.asdict(slots))
    for connection in connections:  # named by a prefix that no actor has: an id is not a name
        add(f"connection {connection['id']}", "connection", GATEWAY, connection)
    for group in dict.fromkeys(parents.values()):
        if group is not None and group not in nodes:
            add(group, "group", None, {})
    root: dict[str, Any] = {"name": ROOT, "kind": "group", "children": []}
    for name, node in nodes.items():
        parent = parents[name]
        (nodes[parent] if parent is not None else root)["children"].append(node)
    return root


def _parent_of(name: str) -> str | None:
    """The part before the dot; names of chats may hold dots and spaces."""
    prefix, dot, _ = name.rpartition(".")
    return prefix if dot and " " not in name else None


def _task(task: "Task", count: dict[str, int]) -> dict[str, Any]:
    count["shown"] += 1
    nurseries = []
    for nursery in task.child_nurseries:
        children = sorted(nursery.child_tasks, key=lambda child: child.name)
        nurseries.append([_task(child, count) for child in children if count["shown"] < MAX_TASKS])
    frames = [
        f"{_place(frame.f_code.co_filename)}:{line} {frame.f_code.co_qualname}"
        for frame, line in task.iter_await_frames()
    ]
    return {"name": task.name, "stack": frames[-MAX_FRAMES:], "nurseries": nurseries}


def _place(file: str) -> str:
    """A file's path from its package on: what is above it belongs to the machine."""
    parts = PurePath(file).parts
    for folder, skip in (("site-packages", 1), ("klaw", 0)):
        if folder in parts:
            begin = len(parts) - 1 - parts[::-1].index(folder) + skip
            return "/".join(parts[begin:])
    return "/".join(parts[-2:])
