"""The table of all kinds of things that Klaw keeps; whoever treats them alike reads it."""

from typing import Any

from klaw.store.changes import Kind
from klaw.store.kinds import chats, core_memory, facts, people, summaries, tasks, topic_changes, usage
from klaw.store.kinds.knowledge import bases, sources

KINDS: tuple[Kind[Any], ...] = (
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
)
