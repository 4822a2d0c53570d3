"""Short ways to make topics in tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from klaw.actor.clock import iso
from klaw.domain.names import UserId, chat_id
from klaw.domain.topic import Topic, TopicId
from klaw.errors import NoSuchTopic
from klaw.store.engine import connect
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import inventory, messages, topic_edits, topics
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.kinds.topic_edits import TopicDraft
from klaw.store.store import Store
from tests.support.stores import START, new

ANNA = UserId("anna")
AT = iso(START + 5_000)


def draft(summary: str, *members: int, **changes: Any) -> TopicDraft:
    return TopicDraft(**{"summary": summary, "general": False, "members": members, **changes})


async def say(store: Store, *texts: str, user: str = "anna", chat: str = "main") -> list[int]:
    """Row ids of new messages."""
    made = [new(text, user=user, chat=chat) for text in texts]
    return [each.message.rowid for each in await store.writer.run(messages.append, made)]


async def archive(store: Store, *groups: Sequence[int], user: str = "anna", chat: str = "main", **changes: Any):
    """One topic for each group of row ids."""
    drafts = [draft(f"topic of {group[0]}", *group, **changes) for group in groups]
    return await store.writer.run(topic_edits.store, UserId(user), chat_id(UserId(user), chat), drafts, AT)


def remove(tx: Transaction, user: UserId, topic: TopicId, at: str) -> Topic:
    """Remove one topic and return what it was: homes of earlier versions have such changes. Raises NoSuchTopic."""
    present = topics.get(tx.connection, user, topic)
    if present is None:
        raise NoSuchTopic
    tx.journal(TOPIC.removed(user, topic, at))
    return present


def flaws_of(file: Path) -> dict[str, int]:
    """What must never be, of a database that is not in use."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connect.prepare_writer(connection)
        return inventory.faults(connection, TOPIC)
    finally:
        connection.close()
