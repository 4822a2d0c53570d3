"""Trio's tree of tasks with their stacks: where everything waits right now. Places in the code only, no values."""

from pathlib import PurePath
from typing import Any

import trio

MAX_TASKS = 2000
"""Tasks shown; the rest is counted. A snapshot is taken in one step, which must stay short."""
MAX_FRAMES = 40


def task_tree() -> dict[str, Any]:
    """A snapshot of all tasks, from Trio's root task down.

    Returns:
        ``task``: the root; every task has ``name``, ``stack`` (``file:line function``, outermost first) and
        ``nurseries``, each a list of tasks. ``shown`` and ``left_out`` count the tasks.
    """
    root = trio.lowlevel.current_root_task()
    counter = _Counter()
    return {"task": _task(root, counter) if root else None, "shown": counter.shown, "left_out": counter.left_out}


class _Counter:
    shown = 0
    left_out = 0


def _task(task: trio.lowlevel.Task, counter: _Counter) -> dict[str, Any]:
    counter.shown += 1
    nurseries = []
    for nursery in task.child_nurseries:
        children = sorted(nursery.child_tasks, key=lambda child: child.name)
        shown = []
        for child in children:  # the children of each take from the same room
            if counter.shown < MAX_TASKS:
                shown.append(_task(child, counter))
            else:
                counter.left_out += _size(child)
        nurseries.append(shown)
    return {"name": task.name, "stack": _stack(task), "nurseries": nurseries}


def _size(task: trio.lowlevel.Task) -> int:
    """How many tasks a task is, with all below it."""
    return 1 + sum(_size(child) for nursery in task.child_nurseries for child in nursery.child_tasks)


def _stack(task: trio.lowlevel.Task) -> list[str]:
    frames = [
        f"{_place(frame.f_code.co_filename)}:{line} {frame.f_code.co_qualname}"
        for frame, line in task.iter_await_frames()
    ]
    return frames[-MAX_FRAMES:]


def _place(file: str) -> str:
    """A file's path from its package on: what is above it belongs to the machine."""
    parts = PurePath(file).parts
    for folder, skip in (("site-packages", 1), ("klaw", 0)):
        if folder in parts:
            begin = len(parts) - 1 - parts[::-1].index(folder) + skip
            return "/".join(parts[begin:])
    return "/".join(parts[-2:])
