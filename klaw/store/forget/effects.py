"""What the calls of tools did, read from their messages. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from klaw.domain.core_memory import Document
from klaw.domain.message import MessageKind, Role
from klaw.domain.task import TaskName, task_name
from klaw.domain.text import clean_output
from klaw.errors import InvalidName
from klaw.store.kinds import forgotten

_KEPT_IN = re.compile(r" is in the file (tool-output/[A-Za-z0-9_.-]+\.txt) of the workspace\.\]$")
"""How ``toolbox.executor`` says where a long result is."""
_SAVED = re.compile(r"saved as (\S{1,64})$")


@attrs.frozen(kw_only=True)
class CoreMade:
    """What a call wrote into core memory."""

    section: str
    key: str
    value: str

    def is_in(self, document: Document) -> bool:
        section = document.get(self.section)
        return isinstance(section, dict) and section.get(self.key) == self.value


@attrs.frozen(kw_only=True)
class TaskMade:
    """A task as a call made it, or changed it to be."""

    name: TaskName
    message: str
    """Empty when the call left it as it was."""


@attrs.frozen(kw_only=True)
class FileMade:
    """A file of the user's workspace that a call wrote to."""

    path: str
    content: str | None = None
    """All of it, as the call wrote it; None when it wrote a part."""
    own: bool = False
    """Klaw's own: a result that was too long."""


@attrs.frozen(kw_only=True)
class Effects:
    """What calls did, as far as that outlives the turn."""

    facts: tuple[str, ...] = ()
    core: tuple[CoreMade, ...] = ()
    tasks: tuple[TaskMade, ...] = ()
    spawned: tuple[TaskMade, ...] = ()
    """Subagents."""
    runs: tuple[str, ...] = ()
    files: tuple[FileMade, ...] = ()
    programs: tuple[str, ...] = ()
    """Names of tools that may have changed something that Klaw does not keep account of."""


def effects_of(rows: Iterable[tuple[str, str, str, Mapping[str, Any]]]) -> Effects:
    """What the calls among messages did that did not fail. Messages are given by role, type, content and metadata."""
    kept = list(rows)
    failed = {_place(metadata, metadata.get("call")) for _, _, _, metadata in kept if metadata.get("error")}
    calls = [
        (call["name"], _arguments(call["arguments"]))
        for _, kind, _, metadata in kept
        for call in (forgotten.calls(metadata) if kind == MessageKind.TOOL_CALL else ())
        if _place(metadata, call["id"]) not in failed
    ]
    results = [
        (str(metadata.get("name")), content.strip())
        for role, _, content, metadata in kept
        if role == Role.TOOL and not metadata.get("error")
    ]
    saved = (_SAVED.fullmatch(text) for name, text in results if name == "memory_save")
    files = {each.path: each for each in (_file(*call) for call in calls) if each is not None}
    long = (_KEPT_IN.search(text) for _, text in results)
    files |= {match[1]: FileMade(path=match[1], own=True) for match in long if match}
    made = [(name, _arguments(text)) for name, text in results]
    return Effects(
        facts=tuple(match[1] for match in saved if match),
        core=tuple(_core(arguments) for name, arguments in calls if name == "memory_core_update"),
        tasks=(*_tasks(calls, "schedule_add", "schedule_edit"), *_tasks(made, "remind")),
        spawned=tuple(_tasks(calls, "subagent_spawn")),
        runs=tuple(_text(_arguments(text), "run") for name, text in results if name == "subagent_spawn"),
        files=tuple(files.values()),
        programs=tuple(dict.fromkeys(name for name, _ in calls if name == "host_exec" or "__" in name)),
    )


def _place(metadata: Mapping[str, Any], call: object) -> tuple[str, str]:
    """A call's id is unique in its turn, or its run."""
    return str(metadata.get("turn") or metadata.get("run")), str(call)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""


def _core(arguments: Mapping[str, Any]) -> CoreMade:
    """Names and values as core memory keeps them."""
    values = {name: clean_output(_text(arguments, name)).split() for name in ("section", "key", "value")}
    return CoreMade(**{name: " ".join(words) for name, words in values.items()})


def _tasks(calls: Sequence[tuple[str, Mapping[str, Any]]], *tools: str) -> Iterator[TaskMade]:
    for arguments in (arguments for tool, arguments in calls if tool in tools):
        try:
            name = task_name(_text(arguments, "name").strip())
        except InvalidName:
            continue  # the call was refused
        yield TaskMade(name=name, message=_text(arguments, "message").strip())


def _file(tool: str, arguments: Mapping[str, Any]) -> FileMade | None:
    if tool not in ("file_write", "file_patch"):
        return None
    whole = tool == "file_write" and arguments.get("mode", "create") != "append"
    return FileMade(path=_text(arguments, "path"), content=_text(arguments, "content") if whole else None)
