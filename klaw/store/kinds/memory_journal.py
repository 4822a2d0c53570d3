"""KINDS, the table of all kinds of things that Klaw keeps, and the memory journal's lines of most of them."""

from collections.abc import Mapping
from typing import Any

import apsw

from klaw.store.changes import Change, Kind
from klaw.store.engine import meta
from klaw.store.kinds import (
    chats,
    core_memory,
    facts,
    memory_files,
    messages,
    people,
    runs,
    summaries,
    tasks,
    tool_notes,
    topic_changes,
    turns,
    usage,
)
from klaw.store.kinds.knowledge import bases, sources

KINDS: list[Kind[Any]] = [
    messages.MESSAGE,
    messages.SESSION,
    turns.TURN,
    runs.RUN,
    facts.FACT,
    people.PERSON,
    people.MENTION,
    core_memory.CORE,
    tasks.TASK,
    summaries.SUMMARY,
    tool_notes.NOTE,
    topic_changes.TOPIC,
    topic_changes.TOPIC_CHANGE,
    chats.CHAT,
    bases.BASE,
    sources.SOURCE,
    memory_files.CHUNK,
    usage.DAY,
    usage.SPENT,
]
"""All of them; ``store.forget``, which stands above the nouns, adds the kind of its own lines."""


def kind_of(what: str) -> Kind[Any] | None:
    """The kind of a word."""
    return next((kind for kind in KINDS if kind.what == what), None)


def read(record: Mapping[str, Any]) -> Change[Any]:
    """The change of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    kind = kind_of(record["what"])
    if kind is None or not kind.ops:
        raise KeyError("what")
    return kind.read(record)


def clear(connection: apsw.Connection) -> None:
    """Remove all but the messages; for a database that is being made from the logs."""
    for kind in KINDS:
        for statement in kind.clear:
            connection.execute(statement)
    meta.remove(connection, meta.MEMORY_ENTRY)
