"""SQL of forgetting: what was made of messages, link by link. Every question names the user.

message -> the turns that answered it -> what they stored: tool calls, results, the answer, messages in other chats ->
what the calls did: facts, core memory, tasks, runs, files -> what the runs said and saved. A link is an id, or what a
call was told and what is still there word for word; text alone is none.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.core_memory import Document
from klaw.domain.message import SHOWN, Kind, Message, Role
from klaw.domain.names import UserId
from klaw.domain.task import TaskName, task_name
from klaw.domain.text import clean_output
from klaw.errors import InvalidName
from klaw.store.forget import turn_links as links
from klaw.store.kinds import messages

MAX_ROUNDS = 20
"""Of following: a run that spawned a run that sent a message …"""

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
        """Whether it stands there still."""
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
    """Subagents: a name and what it was asked."""
    runs: tuple[str, ...] = ()
    """Ids that calls answered with."""
    files: tuple[FileMade, ...] = ()
    programs: tuple[str, ...] = ()
    """Names of the tools that may have changed something that Klaw does not keep account of."""


@attrs.frozen(kw_only=True)
class Derived:
    """What was made of messages. All of the user's."""

    rowids: tuple[int, ...]
    """Row ids of the messages, those too that it was made of."""
    shown: tuple[int, ...]
    """Row ids of answers that showed what would be forgotten, whatever it was."""
    turns: tuple[str, ...]
    runs: tuple[str, ...]
    effects: Effects


def follow(
    connection: apsw.Connection,
    user: UserId,
    named: Sequence[Message],
    *,
    with_tasks: bool,
    of_runs: Collection[str] = (),
) -> tuple[Derived, dict[int, Message]]:
    """Follow every link from messages of a user. Returns also the messages themselves, with those that were made of
    them, by their row ids.

    Args:
        named: the messages.
        with_tasks: also what tasks did that were made of them.
        of_runs: that go in any case.
    """
    own = {each.rowid: each for each in named}
    turns: set[str] = set()
    runs: set[str] = set(of_runs)
    effects = Effects()
    for _ in range(MAX_ROUNDS):
        before = len(own), len(turns), len(runs)
        asked = links.by_chat(each for each in own.values() if each.role is Role.USER)
        for chat, said in asked.items():
            turns |= links.turns_of(connection, user, chat, [each.seq for each in said])
        for chat, said in asked.items():
            turns |= links.interrupted(connection, chat, [each.seq for each in said], turns)
        effects = effects_of((each.role, each.type, each.content, each.metadata) for each in own.values())
        runs |= _runs_of(connection, user, effects, runs, with_tasks=with_tasks)
        found = links.made_by(connection, user, turns, runs, min(own, default=0))
        for chat, calls in links.by_chat(each for each in own.values() if each.type is Kind.TOOL_CALL).items():
            found |= links.results(connection, chat, calls)
        for each in messages.by_rowids(connection, sorted(found - own.keys())):
            own[each.rowid] = each
        if (len(own), len(turns), len(runs)) == before:
            break
    derived = Derived(
        rowids=tuple(sorted(own)),
        shown=tuple(row for row in shown(connection, user) if row not in own),
        turns=tuple(sorted(turns)),
        runs=tuple(sorted(runs)),
        effects=effects,
    )
    return derived, own


_SHOWN = f"""
SELECT rowid FROM messages WHERE user_id = ? AND role = 'system' AND type = 'command' AND metadata ->> '$.{SHOWN}' = 1
ORDER BY rowid
"""  # noqa: S608 - a constant


def shown(connection: apsw.Connection, user: UserId) -> tuple[int, ...]:
    """Row ids of answers that showed what would be forgotten."""
    return tuple(rowid for (rowid,) in connection.execute(_SHOWN, (user,)))


# -- what calls did ----------------------------------------------------------------------------------------------------


def effects_of(rows: Iterator[tuple[str, str, str, Mapping[str, Any]]]) -> Effects:
    """What the calls among messages did that did not fail. Pure.

    Args:
        rows: role, type, content and metadata of each.
    """
    kept = list(rows)
    failed = {_place(metadata, metadata.get("call")) for _, _, _, metadata in kept if metadata.get("error")}
    calls = [
        (call["name"], _arguments(call["arguments"]))
        for _, kind, _, metadata in kept
        for call in (links.calls(metadata) if kind == Kind.TOOL_CALL else ())
        if _place(metadata, call["id"]) not in failed
    ]
    results = [
        (str(metadata.get("name")), content)
        for role, _, content, metadata in kept
        if role == Role.TOOL and not metadata.get("error")
    ]
    made = [_READ[name](arguments) for name, arguments in calls if name in _READ]
    files = {each.path: each for each in made if isinstance(each, FileMade)}
    files |= {match[1]: FileMade(path=match[1], own=True) for _, text in results if (match := _KEPT_IN.search(text))}
    return Effects(
        facts=tuple(
            match[1] for name, text in results if name == "memory_save" and (match := _SAVED.fullmatch(text.strip()))
        ),
        core=tuple(each for each in made if isinstance(each, CoreMade)),
        tasks=tuple(_tasks(calls, "schedule_add", "schedule_edit")),
        spawned=tuple(_tasks(calls, "subagent_spawn")),
        runs=tuple(_text(_arguments(text), "run") for name, text in results if name == "subagent_spawn"),
        files=tuple(files.values()),
        programs=tuple(dict.fromkeys(name for name, _ in calls if name == "host_exec" or "__" in name)),
    )


def _place(metadata: Mapping[str, Any], call: object) -> tuple[str, str]:
    """A call's id is its turn's, or its run's."""
    return str(metadata.get("turn") or metadata.get("run")), str(call)


def calls_of(message: Message) -> list[tuple[str, str]]:
    """The calls that a message asks for: the tool and its arguments."""
    return [(call["name"], call["arguments"]) for call in links.calls(message.metadata)]


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""


def _line(arguments: Mapping[str, Any], name: str) -> str:
    """As core memory keeps names and values."""
    return " ".join(clean_output(_text(arguments, name)).split())


def _core(arguments: Mapping[str, Any]) -> CoreMade:
    return CoreMade(section=_line(arguments, "section"), key=_line(arguments, "key"), value=_line(arguments, "value"))


def _tasks(calls: Sequence[tuple[str, Mapping[str, Any]]], *tools: str) -> Iterator[TaskMade]:
    for tool, arguments in calls:
        try:
            name = task_name(_text(arguments, "name").strip()) if tool in tools else None
        except InvalidName:
            continue  # the call was refused
        if name is not None:
            yield TaskMade(name=name, message=_text(arguments, "message").strip())


def _written(arguments: Mapping[str, Any]) -> FileMade:
    whole = arguments.get("mode", "create") != "append"
    return FileMade(path=_text(arguments, "path"), content=_text(arguments, "content") if whole else None)


_READ: Mapping[str, Callable[[Mapping[str, Any]], CoreMade | FileMade]] = {
    "memory_core_update": _core,
    "file_write": _written,
    "file_patch": lambda arguments: FileMade(path=_text(arguments, "path")),
}

_SPAWNED = "SELECT id FROM runs WHERE user_id = ?1 AND task = ?2 AND trim(message) = ?3 AND kind = 'spawned'"
_OF_TASK = "SELECT id FROM runs WHERE user_id = ?1 AND task = ?2 AND trim(message) = ?3 AND kind <> 'spawned'"
_KNOWN_RUNS = "SELECT id FROM runs WHERE user_id = ?1 AND id IN (SELECT value FROM json_each(?2))"
_CHILDREN = """
WITH RECURSIVE mine (id) AS (
    SELECT value FROM json_each(?2)
    UNION SELECT r.id FROM runs AS r JOIN mine ON r.parent = mine.id WHERE r.user_id = ?1)
SELECT id FROM mine
"""


def _runs_of(
    connection: apsw.Connection, user: UserId, effects: Effects, known: set[str], *, with_tasks: bool
) -> set[str]:
    found = known | {str(row[0]) for row in connection.execute(_KNOWN_RUNS, (user, json.dumps(effects.runs)))}
    for made in effects.spawned:
        found |= {str(row[0]) for row in connection.execute(_SPAWNED, (user, made.name, made.message))}
    for made in effects.tasks:
        if made.message and (with_tasks or not _is_there(connection, user, made)):
            found |= {str(row[0]) for row in connection.execute(_OF_TASK, (user, made.name, made.message))}
    rows = connection.execute(_CHILDREN, (user, json.dumps(sorted(found)))) if found else ()
    return {str(row[0]) for row in rows}


_RUNS_OF = "SELECT id FROM runs WHERE user_id = ?1 AND task IN (SELECT value FROM json_each(?2)) AND kind <> 'spawned'"


def runs_of_tasks(connection: apsw.Connection, user: UserId, tasks: Sequence[TaskName]) -> set[str]:
    """The runs of tasks, whatever they asked; not of subagents of the same name."""
    return {str(run) for (run,) in connection.execute(_RUNS_OF, (user, json.dumps(tasks)))}


def _is_there(connection: apsw.Connection, user: UserId, made: TaskMade) -> bool:
    now = connection.execute("SELECT message FROM tasks WHERE user_id = ? AND name = ?", (user, made.name)).get
    return now is not None and str(now).strip() == made.message


def tasks_there(connection: apsw.Connection, user: UserId, effects: Effects) -> list[TaskMade]:
    """The tasks that are still as a call made them."""
    there = {made.name: made for made in effects.tasks if made.message and _is_there(connection, user, made)}
    return list(there.values())


_FACTS = """
SELECT DISTINCT c.fact_id, EXISTS (SELECT 1 FROM facts AS f WHERE f.user_id = c.user_id AND f.id = c.fact_id)
FROM fact_changes AS c
WHERE c.user_id = ?1 AND c.value IS NOT NULL AND (
    c.fact_id IN (SELECT value FROM json_each(?4))
    OR c.value ->> '$.turn_id' IN (SELECT value FROM json_each(?3))
    OR c.value ->> '$.message_id' IN (
        SELECT id FROM messages WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2))))
"""


def facts_of(connection: apsw.Connection, user: UserId, derived: Derived) -> tuple[set[str], set[str]]:
    """Facts that were ever saved by what was derived, or drawn from its messages: those that are there, and removed
    ones, whose history is there."""
    by = json.dumps([*derived.turns, *derived.runs])
    bound = (user, json.dumps(derived.rowids), by, json.dumps(derived.effects.facts))
    rows = connection.execute(_FACTS, bound).fetchall()
    return {str(fact) for fact, there in rows if there}, {str(fact) for fact, there in rows if not there}


_OF_OTHERS = """
SELECT f.id FROM facts AS f JOIN messages AS m ON m.user_id = f.user_id AND m.id = f.message_id
WHERE f.user_id = ?1 AND m.content <> '' AND m.rowid NOT IN (SELECT value FROM json_each(?2))
"""


def facts_of_others(connection: apsw.Connection, user: UserId, derived: Derived) -> set[str]:
    """Facts that were drawn from other messages, maybe of the same topic."""
    return {str(row[0]) for row in connection.execute(_OF_OTHERS, (user, json.dumps(derived.rowids)))}
