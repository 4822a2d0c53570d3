"""Dropping topics for the archivist to make anew, and taking back changes of topics, in the writer's transaction.

What is taken back is decided here and not by whoever asks: between the question and the transaction nothing can change.
"""

import apsw

from klaw.domain.names import ChatId
from klaw.domain.topic import Topic, TopicId
from klaw.errors import NoSuchChange, TopicChanged
from klaw.store.journal import Entry
from klaw.store.memory_commit import journal
from klaw.store.sql import memory_journal, topic_changes, topics
from klaw.store.topic_records import TopicEntry, TopicState
from klaw.store.topic_requests import RebuildTopics, UndoneTopics, UndoTopics

MOST = 1 << 62


def rebuild(connection: apsw.Connection, request: RebuildTopics, entries: list[Entry]) -> list[int]:
    """Drop the topics in scope. Returns the changes: one line for each chat, so that each is taken back by itself."""
    found = topics.of_user(connection, request.user, chat=request.chat, limit=MOST)
    of: dict[ChatId, list[Topic]] = {}
    for topic in found:
        if request.since is None or topic.last_at >= request.since:
            of.setdefault(topic.chat, []).append(topic)
    made = []
    for chat, own in sorted(of.items()):
        ended = tuple(sorted(topic.id for topic in own))
        entry = TopicEntry(
            entry=0,
            time=request.at,
            user=request.user,
            op="rebuild",
            id=ended[0],
            chat=chat,
            ended=ended,
            by="person",
        )
        journal(connection, entries, entry)
        made.append(memory_journal.last_entry(connection))
    return made


def undo(connection: apsw.Connection, request: UndoTopics, entries: list[Entry]) -> UndoneTopics:
    """Let topics be again what they were before a change, as far as their messages are there.

    Raises:
        NoSuchChange: there is none, or it was taken back already.
        TopicChanged: a later change of the same messages holds, or all of it was forgotten.
    """
    user = request.user
    wanted = request.entry if request.entry is not None else topic_changes.newest(connection, user)
    change = topic_changes.get(connection, user, wanted) if wanted is not None else None
    if change is None:
        raise NoSuchChange("there is no such change of topics, or what it was about is forgotten")
    if change.undone_by is not None:
        raise NoSuchChange(f"change {change.entry} was taken back already, by {change.undone_by}")
    was = {rowid for state in change.before for rowid in state.members}
    mine = set(topic_changes.still_archived(connection, user, change.chat, sorted(was)))
    left = [topic for topic in change.after if topics.get(connection, user, topic) is not None]
    now = {rowid for topic in left for rowid in topics.members(connection, user, topic)}
    newer = topic_changes.later(connection, user, change, was | now)
    if newer is not None:
        raise TopicChanged(f"change {newer} came later and is about the same messages: take that back first")
    states = [
        TopicState(
            id=state.id,
            summary=state.summary,
            general=state.general,
            members=tuple(rowid for rowid in state.members if rowid in mine),
            consolidated=True,  # it is not to be merged again at once
            facts=state.facts,
        )
        for state in change.before
        if not mine.isdisjoint(state.members)
    ]
    back = {state.id for state in states}
    ended = {*left, *topics.topics_of(connection, user, sorted(mine)).values()} - back
    if not states and not ended:
        raise TopicChanged("nothing is left of it")
    entry = TopicEntry(
        entry=0,
        time=request.at,
        user=user,
        op="undo",
        id=min(back | ended),
        chat=change.chat,
        topics=tuple(states),
        ended=tuple(sorted(ended)),
        by="person",
        undoes=change.entry,
    )
    journal(connection, entries, entry)
    there = [found for each in sorted(back) if (found := topics.get(connection, user, TopicId(each))) is not None]
    return UndoneTopics(
        undone=change.entry,
        entry=memory_journal.last_entry(connection),
        topics=tuple(there),
        ended=tuple(sorted(ended)),
    )
