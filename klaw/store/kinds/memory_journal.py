"""The memory journal's table of kinds."""

from collections.abc import Mapping
from typing import Any

import apsw

from klaw.store.changes import Change, Kind
from klaw.store.engine import meta
from klaw.store.kinds import chats, core_memory, facts, people, summaries, tasks, topic_changes, usage
from klaw.store.kinds.knowledge import bases, sources

KINDS: list[Kind[Any]] = [
    tasks.TASK,
    facts.FACT,
    people.PERSON,
    people.MENTION,
    core_memory.CORE,
    summaries.SUMMARY,
    chats.CHAT,
    bases.BASE,
    sources.SOURCE,
    topic_changes.TOPIC,
    usage.DAY,
    usage.SPENT,
]
"""All of them; ``store.forget``, which stands above the nouns, adds the kind of its own lines."""


def read(record: Mapping[str, Any]) -> Change[Any]:
    """The change of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    return {kind.what: kind for kind in KINDS}[record["what"]].read(record)


def clear(connection: apsw.Connection) -> None:
    """Remove all that is made from the journal; for a database that is being made from the logs."""
    for kind in KINDS:
        for statement in kind.clear:
            connection.execute(statement)
    meta.remove(connection, meta.MEMORY_ENTRY)
