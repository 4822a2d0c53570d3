"""Carrying out a forgetting in the database, and remembering that the logs are to be cleaned (``forget.logs``).

What ``forget`` began the next start finishes.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import apsw
import attrs

from klaw.convert import JOURNAL, Form
from klaw.domain import core_memory
from klaw.domain.core_memory import Document
from klaw.domain.forget import PieceFinder, fact_ids, fragments, most_pieces
from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.domain.person import Finder
from klaw.errors import CoreUnreadable, StorageError
from klaw.store.changes import Change, Kind, line, path, record
from klaw.store.engine import meta
from klaw.store.engine.tables import index_row
from klaw.store.engine.transaction import Transaction
from klaw.store.forget import quotes
from klaw.store.forget.journal_entry import ForgetEntry, Forgetting, merged
from klaw.store.forget.quotes import Key, QuotesFound
from klaw.store.forget.reach import Reach, renewed
from klaw.store.kinds import (
    attachments,
    chats,
    facts,
    forgotten,
    messages,
    people,
    summaries,
    tasks,
    topic_changes,
    topics,
)
from klaw.store.kinds import core_memory as core_files
from klaw.store.kinds.core_memory import CORE, CorePut
from klaw.store.kinds.messages import MESSAGE
from klaw.store.kinds.records import KINDS
from klaw.store.rows import dumps
from klaw.store.search import vector_codes

_PENDING = "forget_pending"
"""In ``meta``, with ``:`` and its number behind it: a forgetting that may not be finished in the logs. Without a
number: a list of several, by earlier versions."""


@attrs.frozen(kw_only=True)
class ForgetResult:
    """What a forgetting did in the database, and what to look for in the logs."""

    entries: tuple[ForgetEntry, ...]
    finder: PieceFinder = attrs.field(factory=lambda: PieceFinder.of(()))
    """Content: never logged."""

    @cached_property
    def entry(self) -> ForgetEntry:
        """All of them as if they were one."""
        return merged(self.entries)


# -- for the writer ----------------------------------------------------------------------------------------------------


def forget(tx: Transaction, found: Reach, at: str, *, most: int | None = None) -> tuple[Reach, ForgetResult]:
    """Take out of the database what a forgetting reaches, and remember to clean the logs.

    Args:
        found: read a moment ago; what of it is not current is read again.
        most: so many of the named messages go now, the others by ``forget_rest``; None: all.

    Returns:
        What it reaches now, and what was done.

    Raises:
        StorageError: something of it is not the user's, or not there.
    """
    connection, user, wanted = tx.connection, found.user, found.wanted
    found = renewed(connection, found)
    known = [people.history(connection, user, person) for person in wanted.people]
    if len(found.asked) != len(wanted.rowids) or not all(known) or found.is_empty:
        raise _not_there()
    present, document = _core_without(tx, found)
    if wanted.channel:
        people.part(tx, user, wanted.people, at)
    rowids = {*found.rowids} - set(found.asked[len(found.asked) if most is None else most :])
    going = sorted(rowids)
    # Topics of the rest end with it: the archivist must not find messages without one, and make new ones.
    ended = tuple(sorted({*wanted.traces.topics, *topic_changes.ever_with(connection, user, going)}))
    own_fields = {facts.FACT, people.PERSON, summaries.SUMMARY, topic_changes.TOPIC}
    forgetting = Forgetting(
        messages=tuple(going),
        facts=found.facts,
        topics=ended,
        summaries=found.summaries,
        people=found.people,
        asked=found.asked,
        ran=found.runs,
        tasks=tuple(sorted({*found.changed_tasks, *found.going_tasks})),
        core=document is not None,
        turns=wanted.traces.turns,
        runs=wanted.traces.runs,
        past=forgotten.past_of_others(connection, user, found.people),
        deleted=wanted.deleted,
        undone=(*wanted.facts, *wanted.people) if wanted.channel else (),
        used=forgotten.given_passages(connection, user, [each for each in found.own if each.rowid in rowids]),
        others={
            kind.what: tuple(map(str, found.gone[kind.what]))
            for kind in KINDS
            if kind not in own_fields and found.gone.get(kind.what)
        },
    )
    done = journal(tx, user, forgetting, at, found.quotes)
    for name in forgetting.tasks:  # what earlier lines say is taken out of them, so a line says what holds now
        now = tasks.get(connection, user, name)
        if now is not None:
            goes = name in found.going_tasks
            tx.journal(tasks.TASK.removed(user, name, at) if goes else tasks.TASK.put(user, name, now, at))
    if document is not None:
        tx.journal(CORE.put(user, "", CorePut(document=document, replaces=present), at))
    if wanted.named is not None:
        chats.take_out_of_titles(tx, user, wanted.traces.titles, Finder(wanted.named.names), at)
    attachments.remove(tx, user, found.attachments)
    # What cannot be written now the next start writes.
    tx.after_commit.append(lambda: core_files.settle(connection, tx.data_dir))
    return found, done


def forget_rest(tx: Transaction, user: UserId, rowids: Sequence[int], at: str) -> ForgetEntry:
    """Take further messages of a forgetting out of the database; what was made of them went with the first ones.

    Args:
        rowids: of the messages.
        at: the time of the forgetting: by it the entries belong together.

    Raises:
        StorageError: one of them is not there.
    """
    connection = tx.connection
    own = [each for each in messages.by_rowids(connection, rowids) if each.user == user]
    if not own or len(own) != len(rowids):
        raise _not_there()
    files = attachments.only_of(connection, user, own)
    said = [*(each.content for each in own), *attachments.texts_of(files)] if facts.ever(connection, user) else []
    finder = PieceFinder.of(fragments(said, most_pieces(len(own))))
    forgetting = Forgetting(
        messages=tuple(sorted(rowids)),
        facts=fact_ids(map(str, quotes.once_quoting(connection, user, facts.FACT, finder, gone=True))),
        topics=tuple(sorted(topic_changes.ever_with(connection, user, rowids))),
        summaries=tuple(sorted(summaries.covering(connection, user, rowids))),
        asked=tuple(rowids),
        used=forgotten.given_passages(connection, user, own),
    )
    done = journal(tx, user, forgetting, at, QuotesFound())
    attachments.remove(tx, user, files)
    return done.entry


def _not_there() -> StorageError:
    return StorageError("what is to be forgotten is not there any more: nothing was changed")


def _core_without(tx: Transaction, found: Reach) -> tuple[str, Document | None]:
    """The digest of core memory now, and what it is to be without what was written of it. None when nothing was ever
    written, when it stays because nobody wants it to go, or when the file cannot be read: a person has to look at it.
    """
    made = found.effects.core
    if not made:
        return "", None
    try:
        present = core_files.current(tx.connection, tx.data_dir, found.user)
    except CoreUnreadable:
        return "", None
    there = [each for each in made if each.is_in(present.document)]
    if there and not found.with_facts:
        return "", None
    document = present.document
    for each in there:
        if each.is_in(document):
            document = core_memory.removed(document, each.section, each.key)
    return present.digest, document


def note_forgotten(tx: Transaction, user: UserId, entries: Sequence[int], at: str) -> None:
    for entry in entries:
        tx.journal(FORGET.removed(user, entry, at))


def redact_again(tx: Transaction, entry: ForgetEntry, found: QuotesFound) -> None:
    _redact(tx.connection, entry, found)
    forgotten.blank_receipts(tx.connection, entry.user, entry.knowledge, entry.used)


# -- the entry of the memory journal -----------------------------------------------------------------------------------


def journal(
    tx: Transaction, user: UserId, forgetting: Forgetting, at: str, found: QuotesFound | None = None
) -> ForgetResult:
    """Carry out a forgetting, and write it into the memory journal. See ``apply``."""
    meta.put(tx.connection, meta.FORGET_COMPACT, at)
    change = FORGET.put(user, None, forgetting, at)
    change = attrs.evolve(change, entry=meta.last_entry(tx.connection) + 1)
    done = apply(tx.connection, change, found)
    meta.put(tx.connection, meta.MEMORY_ENTRY, str(change.entry))
    tx.write(path(change), line(change))
    return done


def apply(connection: apsw.Connection, change: Change[Forgetting], found: QuotesFound | None = None) -> ForgetResult:
    """Carry out a change of the memory journal. A database made of logs that were cleaned has nothing to clean.

    Args:
        change: what is forgotten.
        found: quotes that a look found a moment ago, so that only what was written since is looked through here.
    """
    entry = ForgetEntry.of(change)
    user, at = entry.user, entry.entry
    if entry.done is not None:
        _wait_no_more(connection, entry.done)
        return ForgetResult(entries=(entry,))
    for kind in KINDS:
        if kind.full_text:
            index = f"{kind.table}_fts"
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('secure-delete', 1)")  # noqa: S608
    own = tuple(each for each in messages.by_rowids(connection, entry.messages) if each.user == user)
    found = found or quotes.look(connection, user, _texts(connection, own, entry), entry.messages, entry.asked)
    for topic in entry.topics:
        topics.end(connection, change, topic, None)
    for chat, number in entry.summaries:
        summaries.remove(connection, chat, number)
    if entry.turns or entry.runs:
        finder = Finder(tuple(forgotten.own_names(connection, user, entry.people).values()))
        forgotten.take_out_names(connection, user, finder, entry.turns, entry.runs)
    if entry.ran:
        forgotten.empty_runs(connection, user, entry.ran)
    for kind in KINDS:
        for key in entry.gone.get(kind.what, ()):
            kind.remove(connection, user, key, dates=key not in entry.undone)
    forgotten.forget_past(connection, user, entry.past)
    tasks.forget_past(connection, user, entry.tasks)
    people.forget_mentions(connection, user, entry.people, entry.topics, [message.id for message in own])
    _drop_vectors(connection, own)
    forgotten.erase(connection, user, own, at, entry.time)
    for chat, seq in entry.deleted:
        chats.forget(connection, user, chat, seq, at)
    topic_changes.forget(connection, user, entry.messages, entry.topics, at)
    if not entry.knowledge:  # else they may be many, and are done by and by
        forgotten.blank_receipts(connection, user, (), entry.used)
    _redact(connection, entry, found)
    meta.put(connection, f"{meta.LAST_FORGETTING}{user}", str(at))
    meta.put(connection, f"{_PENDING}:{at}", dumps(record(change)))
    return ForgetResult(entries=(entry,), finder=found.finder)


def _texts(connection: apsw.Connection, own: Sequence[Message], entry: ForgetEntry) -> list[str]:
    texts = [each.content for each in own if each.rowid in entry.asked]
    texts += attachments.texts_of(attachments.only_of(connection, entry.user, own))
    for kind in KINDS:
        for key in entry.gone.get(kind.what, ()) if kind is not people.PERSON else ():
            texts += kind.texts(connection, entry.user, key)
    return texts


_VECTOR_BYTES = "SELECT length(embedding) FROM vec_messages WHERE rowid = ?"


def _drop_vectors(connection: apsw.Connection, own: Sequence[Message]) -> None:
    """Overwrite the vectors of messages, and of those behind them, and their codes, and remove the vectors: vec0 leaves
    the bytes of a removed one."""
    behind = forgotten.behind(connection, own)
    forgotten.embed_again(connection, [each.rowid for each in behind])
    going = [*own, *behind]
    for chat in {each.chat for each in going}:
        session = messages.session(connection, chat)
        if session is not None:
            vector_codes.erase(connection, session.key, [each.rowid for each in going if each.chat == chat])
    for message in going:
        size = connection.execute(_VECTOR_BYTES, (message.rowid,)).get
        if size is not None:
            zeros = (bytes(size), message.rowid)
            connection.execute("UPDATE vec_messages SET embedding = ? WHERE rowid = ?", zeros)
            connection.execute("DELETE FROM vec_messages WHERE rowid = ?", (message.rowid,))


# -- quotes ------------------------------------------------------------------------------------------------------------


def _redact(connection: apsw.Connection, entry: ForgetEntry, found: QuotesFound) -> None:
    """Put MARK in place of each piece wherever a user's rows quote it."""
    if found.finder:
        for kind, key in quotes.rows_with(connection, entry.user, found, entry.messages, entry.asked):
            _redact_row(connection, entry.user, kind, key, found.finder)
        for kind in (kind for kind in quotes.redacted() if kind.past):
            rows = f"SELECT value, entry FROM {kind.past} WHERE user_id = ? AND value IS NOT NULL"  # noqa: S608
            for value, number in connection.execute(rows, (entry.user,)).fetchall():
                if (new := _redacted(str(value), found.finder, True)) != value:
                    connection.execute(f"UPDATE {kind.past} SET value = ? WHERE entry = ?", (new, number))  # noqa: S608


def _redact_row(connection: apsw.Connection, user: UserId, kind: Kind[Any], key: Key, finder: PieceFinder) -> None:
    columns = [column for column, note in kind.quotes.items() if not note.stays]
    which = f"WHERE {kind.id} = ? AND +user_id = ?"
    values = connection.execute(f"SELECT {', '.join(columns)} FROM {kind.table} {which}", (key, user)).fetchone()  # noqa: S608
    if values is None:
        return
    new = [_redacted(value, finder, column in kind.documents) for column, value in zip(columns, values, strict=True)]
    if new == list(values):
        return
    if kind is MESSAGE:
        _drop_vectors(connection, messages.by_rowids(connection, [int(key)]))
    if kind.full_text or kind.vectors:
        kind.unindex(connection, int(key))
    write = f"UPDATE {kind.table} SET {', '.join(f'{column} = ?' for column in columns)} {which}"  # noqa: S608
    connection.execute(write, (*new, key, user))
    if kind.full_text:
        index_row(connection, kind.table, int(key))
    if kind is MESSAGE:
        forgotten.text_changed(connection, int(key))


def _redacted(value: str | None, finder: PieceFinder, document: bool) -> str | None:
    if value is None or not document:
        return value and str(finder.taken_out(value))
    found = json.loads(value)
    cut = finder.taken_out(found)
    return value if cut == found else dumps(cut)


def merge_small_indexes(connection: apsw.Connection) -> None:
    """Merge the indexes in which rows were replaced before they were told to leave no words: until then, what was taken
    out of them is a mark beside the old words. That of messages is large, and only forgetting takes words out of it."""
    for kind in KINDS:
        if kind.full_text and kind is not MESSAGE:
            connection.execute(f"INSERT INTO {kind.table}_fts ({kind.table}_fts) VALUES ('optimize')")  # noqa: S608


# -- what is not finished ----------------------------------------------------------------------------------------------


def pending(connection: apsw.Connection) -> list[ForgetEntry]:
    """Forgettings that may not be finished in the logs, the oldest first."""
    rows = connection.execute("SELECT value FROM meta WHERE key = ?1 OR key GLOB ?1 || ':*'", (_PENDING,))
    values = [json.loads(value) for (value,) in rows]
    found = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [ForgetEntry.of(FORGET.read(each)) for each in sorted(found, key=itemgetter("entry"))]


def _wait_no_more(connection: apsw.Connection, entry: int) -> None:
    meta.remove(connection, f"{_PENDING}:{entry}")
    if (several := meta.get(connection, _PENDING)) is not None:
        left = [each for each in json.loads(several) if each["entry"] != entry]
        meta.put(connection, _PENDING, dumps(left))


FORGET: Kind[Forgetting] = Kind(
    what="forget",
    plural="forgettings",
    cls=Forgetting,
    counted="forgets",
    ops={"put": Forgetting, "remove": None},
    key=Form(lambda key: JOURNAL.read(int(key), int) if key else None, lambda done: "" if done is None else str(done)),
    apply=apply,
    clear=(
        f"DELETE FROM meta WHERE key = '{_PENDING}' OR key GLOB '{_PENDING}:*'",  # noqa: S608 - constants
        f"DELETE FROM meta WHERE substr(key, 1, {len(meta.LAST_FORGETTING)}) = '{meta.LAST_FORGETTING}'",  # noqa: S608
    ),
)
KINDS.append(FORGET)
