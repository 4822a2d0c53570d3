"""From messages to all that was made of them, link by link. Every question names the user.

message -> the turns that answered it -> what they stored: tool calls, results, the answer, messages in other chats ->
what the calls did: facts, core memory, tasks, runs, files -> what the runs said and saved. A link is an id, or what a
call was told and what is still there word for word; the same text alone is no link.
"""

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.attachment import Attachment
from klaw.domain.core_memory import Document
from klaw.domain.fact import FactId
from klaw.domain.forget import PieceFinder, fragments, most_pieces
from klaw.domain.message import Kind, Message, Role
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName, task_name
from klaw.domain.text import clean_output
from klaw.errors import InvalidName
from klaw.store.forget.quotes import PersonTraces
from klaw.store.kinds import attachments, facts, imports, messages, tasks
from klaw.store.kinds.forgetting import turn_links as links

MAX_ROUNDS = 20
"""Limit of following links: a run that spawned a run that sent a message …"""

_KEPT_IN = re.compile(r" is in the file (tool-output/[A-Za-z0-9_.-]+\.txt) of the workspace\.\]$")
"""How ``toolbox.executor`` says where a long result is."""
_SAVED = re.compile(r"saved as (\S{1,64})$")


# -- what calls did ----------------------------------------------------------------------------------------------------


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


def effects_of(rows: Iterable[tuple[str, str, str, Mapping[str, Any]]]) -> Effects:
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


def tasks_there(connection: apsw.Connection, user: UserId, effects: Effects) -> list[TaskMade]:
    """The tasks that are still as a call made them."""
    there = {made.name: made for made in effects.tasks if made.message and _is_there(connection, user, made)}
    return list(there.values())


def _is_there(connection: apsw.Connection, user: UserId, made: TaskMade) -> bool:
    now = tasks.get(connection, user, made.name)
    return now is not None and now.message.strip() == made.message


# -- following ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ForgetTarget:
    """What is to be forgotten, by its numbers; it goes in any case."""

    user: UserId
    rowids: tuple[int, ...] = ()
    """Row ids of the messages."""
    facts: tuple[FactId, ...] = ()
    people: tuple[PersonId, ...] = ()
    tasks: tuple[TaskMade, ...] = ()
    """All that they ever asked; their runs go too."""
    named: PersonTraces | None = None
    """For a person: everything that names it."""
    with_messages: bool = False
    """For a person: the messages, topics and summaries that name it go too, and titles, receipts and runs lose it."""
    deleted: tuple[tuple[ChatId, int], ...] = ()
    """Chats that go as a whole, up to a ``seq``."""
    followed: bool = False
    """What was made of it went already, by another entry of the same forgetting."""
    channel: str = ""
    """For an import, whose messages ``rowids`` are: too many to hold their texts, and no turn answered them."""

    @property
    def traces(self) -> PersonTraces:
        """What loses the names of a person."""
        return self.named if self.named is not None and self.with_messages else PersonTraces()


@attrs.frozen(kw_only=True)
class Trace:
    """What goes in any case, and what was made of it, as far as messages have to be read to find it: that takes seconds
    where there are tens of thousands."""

    asked: tuple[int, ...]
    """Row ids of the messages that were named."""
    rowids: tuple[int, ...]
    """Row ids of those and of the messages that were made of them."""
    shown: tuple[int, ...] = ()
    """Row ids of answers that showed what would be forgotten, whatever it was."""
    turns: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    effects: Effects = Effects()
    own: tuple[Message, ...]
    """The messages; of an import those with files."""
    attachments: tuple[Attachment, ...]
    """Files of the messages that no other message has."""
    texts: tuple[str, ...]
    """All that was named; of an import the longest. Content: never logged."""
    finder: PieceFinder
    """Finds the texts and parts of them."""


def trace(connection: apsw.Connection, wanted: ForgetTarget, *, with_tasks: bool) -> Trace:
    """Read what goes in any case, and what was made of it. Others' messages are left out.

    Args:
        with_tasks: also what tasks did that were made of it.
    """
    user = wanted.user
    if wanted.channel:
        rowids, own, contents = wanted.rowids, *imports.texts_of(connection, user, wanted.channel)
        texts = heapq.nlargest(most_pieces(len(rowids)), contents, key=len)
        found: dict[str, Any] = {"asked": rowids, "rowids": rowids, "shown": links.shown(connection, user)}
    else:
        asked = [each for each in messages.by_rowids(connection, wanted.rowids) if each.user == user]
        found = {"asked": tuple(each.rowid for each in asked), "rowids": tuple(sorted(each.rowid for each in asked))}
        all_own = {each.rowid: each for each in asked}
        if not wanted.followed:
            found |= _follow(connection, wanted, all_own, with_tasks=with_tasks)
        own = [*(all_own[rowid] for rowid in found["rowids"]), *messages.by_rowids(connection, found.get("shown", ()))]
        texts = [each.content for each in asked]
    alone = attachments.only_of(connection, user, own)
    texts += attachments.texts_of(alone)
    if wanted.followed and not facts.ever(connection, user):  # what else they are for was done before
        texts = []
    texts += [text for fact in wanted.facts for text in facts.FACT.texts(connection, user, fact)]
    texts += [each.message for each in wanted.tasks]
    return Trace(
        **found,
        own=tuple(own),
        attachments=tuple(alone),
        texts=tuple(texts),
        finder=PieceFinder.of(fragments(texts, most_pieces(len(found["asked"])))),
    )


def _follow(
    connection: apsw.Connection, wanted: ForgetTarget, own: dict[int, Message], *, with_tasks: bool
) -> dict[str, Any]:
    """Follow every link from messages of a user, and add the messages that were made of them."""
    user, turns = wanted.user, set[str]()
    runs = links.runs_of_tasks(connection, user, [each.name for each in wanted.tasks])
    effects = Effects()
    for _ in range(MAX_ROUNDS):
        before = len(own), len(turns), len(runs)
        asked = links.by_chat(each for each in own.values() if each.role is Role.USER)
        for chat, said in asked.items():
            turns |= links.turns_of(connection, user, chat, [each.seq for each in said])
        for chat, said in asked.items():
            turns |= links.interrupted(connection, chat, [each.seq for each in said], turns)
        effects = effects_of((each.role, each.type, each.content, each.metadata) for each in own.values())
        for made in effects.spawned:
            runs |= links.runs_asked(connection, user, made.name, made.message, spawned=True)
        for made in effects.tasks:
            if made.message and (with_tasks or not _is_there(connection, user, made)):
                runs |= links.runs_asked(connection, user, made.name, made.message, spawned=False)
        runs = links.with_children(connection, user, runs, effects.runs)
        found = links.made_by(connection, user, turns, runs, min(own, default=0))
        for chat, calls in links.by_chat(each for each in own.values() if each.type is Kind.TOOL_CALL).items():
            found |= links.results(connection, chat, calls)
        own |= {each.rowid: each for each in messages.by_rowids(connection, sorted(found - own.keys()))}
        if (len(own), len(turns), len(runs)) == before:
            break
    return {
        "rowids": tuple(sorted(own)),
        "shown": tuple(row for row in links.shown(connection, user) if row not in own),
        "turns": tuple(sorted(turns)),
        "runs": tuple(sorted(runs)),
        "effects": effects,
    }
