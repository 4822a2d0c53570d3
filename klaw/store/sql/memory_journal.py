"""Carrying out entries of the memory journal, of whatever kind, in the order of their numbers."""

from typing import assert_never

import apsw

from klaw.store.background_records import DayEntry, SpentEntry
from klaw.store.forget_records import ForgetEntry
from klaw.store.memory_records import CoreEntry, FactEntry, MemoryEntry, SummaryEntry, TaskEntry
from klaw.store.person_records import MentionEntry, PersonEntry
from klaw.store.sql import (
    background,
    core_memory,
    facts,
    forgetting,
    meta,
    people,
    summaries,
    tasks,
    topic_changes,
    topics,
)
from klaw.store.topic_records import TopicEntry

ENTRY = meta.MEMORY_ENTRY
"""In ``meta``."""


def last_entry(connection: apsw.Connection) -> int:
    """Number of the memory journal's last entry that this database has; 0 for none."""
    return meta.last_entry(connection)


def apply(connection: apsw.Connection, entry: MemoryEntry) -> bool:
    """Carry out an entry of the memory journal. False when it, or a later one, was carried out before.

    Raises:
        apsw.ConstraintError: its value is none for its kind.
    """
    if entry.entry <= last_entry(connection):
        return False
    match entry:
        case TaskEntry():
            tasks.apply(connection, entry)
        case FactEntry():
            facts.apply(connection, entry)
        case CoreEntry():
            core_memory.apply(connection, entry)
        case SummaryEntry():
            summaries.apply(connection, entry)
        case TopicEntry():
            topic_changes.record(connection, entry)
            topics.apply(connection, entry)
        case PersonEntry() | MentionEntry():
            people.apply(connection, entry)
        case ForgetEntry():
            forgetting.apply(connection, entry)
        case DayEntry() | SpentEntry():
            background.apply(connection, entry)
        case _:
            assert_never(entry)
    meta.put(connection, ENTRY, str(entry.entry))
    return True


def kind(entry: MemoryEntry) -> str:
    """The word under which changes of its kind are counted, such as ``tasks``."""
    match entry:
        case TaskEntry():
            return "tasks"
        case FactEntry():
            return "facts"
        case CoreEntry():
            return "core"
        case SummaryEntry():
            return "summaries"
        case TopicEntry():
            return "topics"
        case PersonEntry() | MentionEntry():
            return "people"
        case ForgetEntry():
            return "forgets"
        case DayEntry():
            return "days"
        case SpentEntry():
            return "spendings"
        case _:
            assert_never(entry)


def clear(connection: apsw.Connection) -> None:
    """Remove all that is made from the journal; for a database that is being made from the logs."""
    for each in (tasks, facts, people, core_memory, summaries, topics, topic_changes, forgetting, background):
        each.clear(connection)
    meta.remove(connection, ENTRY)
