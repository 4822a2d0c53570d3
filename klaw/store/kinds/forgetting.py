"""Forgetting: what is taken out of the database, and cleaning the logs. ``klaw.memory.forget`` is the only one who
calls it. What ``forget`` began the next start finishes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.domain import core_memory
from klaw.domain.core_memory import Document
from klaw.domain.fact import FactId
from klaw.domain.names import UserId
from klaw.errors import CoreUnreadable, StorageError
from klaw.store import changes
from klaw.store.changes import Change
from klaw.store.engine import meta
from klaw.store.engine.transaction import Stopped, Transaction
from klaw.store.forget import forgetting
from klaw.store.forget import logs as forget_logs
from klaw.store.forget.cleaner import Cleaner
from klaw.store.forget.forget_scope import Extra, Scope, scope
from klaw.store.forget.forgetting import FORGET
from klaw.store.forget.forgotten import Forgetting, Forgot
from klaw.store.forget.quoting import Looked
from klaw.store.kinds import core_memory as core_files
from klaw.store.kinds import people, tasks
from klaw.store.kinds.core_memory import CORE, CorePut

NOTHING_ELSE = Extra()

log = structlog.get_logger("klaw.writer")


def forget(
    tx: Transaction,
    user: UserId,
    messages: Sequence[int],
    facts: Sequence[FactId],
    at: str,
    *,
    with_facts: bool,
    extra: Extra = NOTHING_ELSE,
    looked: Looked | None = None,
) -> Forgot:
    """Take messages, facts and people, and what was made of them, out of the database, and remember to clean the logs.
    Returns what those are to be cleaned of.

    Args:
        tx: the transaction.
        user: whose.
        messages: row ids.
        facts: ids.
        at: the time now, ISO-8601 UTC with milliseconds.
        with_facts: also facts that were made of the messages, or say the same.
        extra: what else.
        looked: a look at the very same, a moment ago: it leaves the writer little to read.

    Raises:
        StorageError: one of them is not the user's, or not there.
    """
    connection = tx.connection
    found = scope(connection, user, tuple(messages), tuple(facts), with_facts=with_facts, extra=extra)
    known = [people.history(connection, user, person) for person in extra.people]
    if (
        len(found.asked) != len(messages)
        or not all(known)
        or not (found.asked or found.facts or found.people or found.topics or found.summaries)
    ):
        raise StorageError("what is to be forgotten is not there any more: nothing was changed")
    present, document = _core_without(tx, found)
    forgotten = Forgetting(
        messages=tuple(sorted(each.rowid for each in found.own)),
        facts=found.facts,
        topics=found.topics,
        summaries=found.summaries,
        people=found.people,
        asked=found.asked,
        ran=found.runs,
        tasks=(*found.changed_tasks, *(each.name for each in found.tasks if with_facts)),
        core=document is not None,
        turns=extra.turns,
        runs=extra.runs,
        past=people.past_of_others(connection, user, found.people),
    )
    meta.put(connection, meta.FORGET_COMPACT, at)
    done = _carry_out(tx, FORGET.put(user, None, forgotten, at), looked)
    gone = {each.name for each in found.tasks}
    for name in forgotten.tasks:  # what earlier lines say is taken out of them, so a line says what holds now
        now = tasks.get(connection, user, name)
        if now is not None:
            tx.journal(tasks.TASK.removed(user, name, at) if name in gone else tasks.TASK.put(user, name, now, at))
    if document is not None:
        tx.journal(CORE.put(user, "", CorePut(document=document, replaces=present), at))
    tx.after_commit.append(lambda: _settle(tx))
    return done


def _settle(tx: Transaction) -> None:
    core_files.settle(tx.connection, tx.data_dir)  # what cannot be written now the next start writes


def note_forgotten(tx: Transaction, user: UserId, entry: int, at: str) -> None:
    """Remember that a forgetting is finished in all logs."""
    _carry_out(tx, FORGET.removed(user, entry, at))


def _core_without(tx: Transaction, found: Scope) -> tuple[str, Document | None]:
    """The digest of core memory now, and what it is to be without what was written of it. None when nothing was ever
    written, when it stays because nobody wants it to go, or when the file cannot be read: a person has to look at it.
    """
    if not found.core:
        return "", None
    try:
        present = core_files.current(tx.connection, tx.data_dir, found.user)
    except CoreUnreadable:
        return "", None
    there = [made for made in found.core if made.is_in(present.document)]
    if there and not found.with_facts:
        return "", None
    document = present.document
    for made in there:
        if made.is_in(document):
            document = core_memory.removed(document, made.section, made.key)
    return present.digest, document


def _carry_out(tx: Transaction, change: Change[Forgetting], looked: Looked | None = None) -> Forgot:
    change = attrs.evolve(change, entry=meta.last_entry(tx.connection) + 1)
    done = forgetting.apply(tx.connection, change, looked)
    meta.put(tx.connection, meta.MEMORY_ENTRY, str(change.entry))
    tx.write(changes.path(change), changes.line(change))
    return done


def clean_logs(stopped: Stopped, cleaner: Cleaner, paths: Sequence[str]) -> int:
    """Rewrite logs without what was forgotten; returns how many lines changed.

    Raises:
        StorageError: a reindex is reading the logs, or they cannot be written; the next start does it.
    """
    with _left_to_the_next_start(stopped):
        return sum(stopped.journal.rewrite(path, cleaner.line_of(path)) for path in paths)


def compact_database(stopped: Stopped, *, vacuum: bool) -> None:
    """Empty the write-ahead log into the database; with ``vacuum`` make the file anew, which takes a second for some
    hundred megabytes.

    Raises:
        StorageError: see ``clean_logs``.
    """
    with _left_to_the_next_start(stopped):
        forget_logs.compact(stopped.connection, vacuum=vacuum)


@contextmanager
def _left_to_the_next_start(stopped: Stopped) -> Iterator[None]:
    """What cannot be cleaned now the next start cleans: it is noted in the database and in the memory journal."""
    if stopped.journal.is_read:
        raise StorageError("a reindex is reading the logs: what is left is cleaned at the next start")
    try:
        yield
    except (apsw.Error, OSError) as error:
        log.error("clean_failed", error=error_class(error), where=where(error))
        raise StorageError(
            f"the logs could not be cleaned ({error_class(error)}); the next start tries again"
        ) from error
