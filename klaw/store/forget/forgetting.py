"""Forgetting: what is taken out of the database, and cleaning the logs. ``klaw.memory.forget`` is the only one who
calls it. What ``forget`` began the next start finishes."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.domain import core_memory
from klaw.domain.attachment import FILES
from klaw.domain.core_memory import Document
from klaw.domain.forget import FORGOTTEN, most_pieces
from klaw.domain.names import UserId
from klaw.domain.person import Finder
from klaw.errors import CoreUnreadable, StorageError
from klaw.store import changes
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_files import FAULTS, parse
from klaw.store.engine.log_rewrite import STEP_BYTES, LogRewrite
from klaw.store.engine.transaction import Stopped, Transaction, WriteRequest, commit_group
from klaw.store.forget import applying, quoting
from klaw.store.forget import logs as forget_logs
from klaw.store.forget.applying import FORGET, Look, is_current
from klaw.store.forget.cleaner import Cleaner
from klaw.store.forget.entry import ForgetEntry, Forgetting, Forgot, Lines, merged, together
from klaw.store.forget.quoting import Looked
from klaw.store.forget.scope import Scope, Wanted, scope, topics_with
from klaw.store.kinds import attachments, chats, memory_journal, messages, people, tasks
from klaw.store.kinds import core_memory as core_files
from klaw.store.kinds.core_memory import CORE, CorePut
from klaw.store.kinds.facts import FACT

T = TypeVar("T")

log = structlog.get_logger("klaw.forget")


def forget(
    tx: Transaction,
    wanted: Wanted,
    at: str,
    *,
    with_facts: bool,
    look: Look | None = None,
    looked: Looked | None = None,
    most: int | None = None,
) -> Forgot:
    """Take messages, facts and people, and what was made of them, out of the database, and remember to clean the logs.
    Returns what those are to be cleaned of.

    Args:
        wanted: whose, and which.
        at: the time now, ISO-8601 UTC with milliseconds.
        with_facts: also facts that were made of the messages, or say the same.
        look: at the very same, a moment ago: it leaves the writer little to read.
        looked: only what quotes it.
        most: so many of the named messages go now, the ``rest`` by ``forget_rest``; None: all.

    Raises:
        StorageError: one of them is not the user's, or not there.
    """
    connection, user = tx.connection, wanted.user
    looked = look.looked if look is not None else looked
    if look is not None and wanted.channel:
        found = look.scope  # so much is not read again while everybody waits; topics of the rest are looked for then
    else:
        said = look.said if look is not None and is_current(connection, wanted, look) else None
        found = scope(connection, wanted, with_facts=with_facts, said=said)
    known = [people.history(connection, user, person) for person in wanted.people]
    if (
        len(found.asked) != len(wanted.rowids)
        or not all(known)
        or not any((found.asked, found.facts, found.people, found.topics, found.summaries, found.deleted, wanted.tasks))
    ):
        raise StorageError("what is to be forgotten is not there any more: nothing was changed")
    present, document = _core_without(tx, found)
    if wanted.channel:
        people.part(tx, user, wanted.people, at)
    rest = found.asked[len(found.asked) if most is None else most :]
    rowids_going = {*found.rowids} - set(rest)
    going = sorted(rowids_going)
    # Topics of the rest end with it: the archivist must not find messages without one, and make new ones.
    gone = {each.name for each in (*wanted.tasks, *(found.tasks if with_facts else ()))}
    topics = found.topics if not rest else tuple(sorted({*wanted.topics, *topics_with(connection, user, going)}))
    forgotten = Forgetting(
        messages=tuple(going),
        facts=found.facts,
        topics=topics,
        summaries=found.summaries,
        people=found.people,
        asked=found.asked,
        ran=found.runs,
        tasks=tuple(sorted({*found.changed_tasks, *gone})),
        core=document is not None,
        turns=wanted.turns,
        runs=wanted.runs,
        past=people.past_of_others(connection, user, found.people),
        deleted=found.deleted,
        undone=(*wanted.facts, *wanted.people) if wanted.channel else (),
        used=applying.given_passages(connection, user, [each for each in found.own if each.rowid in rowids_going]),
    )
    done = applying.journal(tx, user, forgotten, at, looked)
    for name in forgotten.tasks:  # what earlier lines say is taken out of them, so a line says what holds now
        now = tasks.get(connection, user, name)
        if now is not None:
            tx.journal(tasks.TASK.removed(user, name, at) if name in gone else tasks.TASK.put(user, name, now, at))
    if document is not None:
        tx.journal(CORE.put(user, "", CorePut(document=document, replaces=present), at))
    if wanted.named is not None:
        chats.take_out_of_titles(tx, user, wanted.titles, Finder(wanted.named.names), at)
    attachments.remove(tx, user, found.attachments)
    # What cannot be written now the next start writes.
    tx.after_commit.append(lambda: core_files.settle(connection, tx.data_dir))
    if not wanted.followed:  # else those of the first entry say it
        done = attrs.evolve(done, lines=applying.lines(connection, done.entry))
    return attrs.evolve(done, rest=rest)


def forget_rest(tx: Transaction, user: UserId, rowids: Sequence[int], at: str) -> Forgot:
    """Take further messages of a forgetting out of the database, from which all is gone that was made of them.

    Args:
        tx: the transaction.
        user: whose.
        rowids: of the messages.
        at: the time of the forgetting: by it the entries belong together.

    Raises:
        StorageError: one of them is not there.
    """
    wanted = Wanted(user=user, rowids=tuple(rowids), followed=True)
    return forget(tx, wanted, at, with_facts=False, looked=Looked())


def note_forgotten(tx: Transaction, user: UserId, entries: Sequence[int], at: str) -> None:
    """Remember that forgettings are finished in all logs."""
    for entry in entries:
        tx.journal(FORGET.removed(user, entry, at))


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


def begin_cleaning(stopped: Stopped, cleaner: Cleaner, paths: Sequence[str]) -> list[LogRewrite]:
    """Begin to rewrite logs without what was forgotten. Raises StorageError, as ``exchange_logs``."""
    with left_to_the_next_start(stopped.journal):
        return [stopped.journal.begin_rewrite(path, cleaner.line_of(path)) for path in paths]


def take_in(rewrites: Sequence[LogRewrite]) -> None:
    """Take in what is left of logs, and make it durable. In any thread.

    Raises:
        StorageError: see ``exchange_logs``.
    """
    with left_to_the_next_start():
        for each in rewrites:
            while each.left:
                each.step()
            each.sync()


def exchange_logs(stopped: Stopped, rewrites: Sequence[LogRewrite]) -> list[LogRewrite]:
    """Put the new logs in the place of the old ones. Returns those to which too much was appended meanwhile: see
    ``Journal.exchange``.

    Raises:
        StorageError: a reindex is reading the logs, or they cannot be written; the next start does it.
    """
    with left_to_the_next_start(stopped.journal):
        return stopped.journal.exchange_all(rewrites, most=STEP_BYTES)


def sync_folders(rewrites: Sequence[LogRewrite]) -> None:
    """Make it durable that logs were exchanged, before it is noted. In any thread.

    Raises:
        StorageError: see ``exchange_logs``.
    """
    with left_to_the_next_start():
        for each in rewrites:
            each.sync_folder()


def compact_database(stopped: Stopped, *, vacuum: bool) -> bool:
    """Empty the write-ahead log into the database; with ``vacuum`` rebuild the file, which takes a second for some
    hundred megabytes. Returns whether that was done: see ``logs.compact``.

    Raises:
        StorageError: see ``exchange_logs``.
    """
    with left_to_the_next_start(stopped.journal):
        return forget_logs.compact(stopped.connection, vacuum=vacuum)


@contextmanager
def left_to_the_next_start(journal: Journal | None = None) -> Iterator[None]:
    """What cannot be cleaned now the next start cleans: it is noted in the database and in the memory journal."""
    if journal is not None and journal.is_read:
        raise StorageError("a reindex is reading the logs: what is left is cleaned at the next start")
    try:
        yield
    except (apsw.Error, OSError) as error:
        log.error("clean_failed", error=error_class(error), where=where(error))
        raise StorageError(
            f"the logs could not be cleaned ({error_class(error)}); the next start tries again"
        ) from error


# -- finishing what was interrupted -----------------------------------------------------------------------------------

MOST_AT_START = 500
"""Messages of a forgetting that a start finishes; a larger one is finished beside the running server."""


def finish(connection: apsw.Connection, journal: Journal, root: Path) -> int:
    """Finish what a kill interrupted, but what is large. Returns how many forgettings that were. Raises OSError,
    apsw.Error, StorageError."""
    several = [each for each in together(applying.pending(connection)) if len(each[0].asked) <= MOST_AT_START]
    for entries in several:
        _finish(connection, journal, root, entries)
    return len(several)


def interrupted(connection: apsw.Connection) -> list[list[ForgetEntry]]:
    """The large forgettings that a kill interrupted, each with its entries so far."""
    return [each for each in together(applying.pending(connection)) if len(each[0].asked) > MOST_AT_START]


def redact(tx: Transaction, entry: ForgetEntry, looked: Looked) -> Lines:
    """Take quotes out of the database once more. Returns what lines of logs are to say."""
    applying.redact(tx.connection, entry, looked)
    applying.blank_receipts(tx.connection, entry.user, entry.knowledge, entry.used)
    return applying.lines(tx.connection, entry)


def _finish(connection: apsw.Connection, journal: Journal, root: Path, entries: list[ForgetEntry]) -> None:
    """Finish one forgetting, of one or several entries."""

    def write(*requests: WriteRequest) -> list[Any]:
        outcomes = commit_group(connection, journal, requests)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [outcome.value for outcome in outcomes]

    first = entries[0]
    rest = applying.left(connection, first)
    if rest:
        (more,) = write(WriteRequest(forget_rest, (first.user, rest, first.time)))
        entries.append(more.entry)
    entry = merged(entries)
    looked = quoting.look(connection, entry.user, texts_of(connection, root, entry), entry.messages, entry.asked)
    (lines,) = write(WriteRequest(redact, (entry, looked)))
    forget_logs.clean(journal, root, Cleaner(entry, looked.pieces, own=False, lines=lines))
    forget_logs.remove_copies(root, entry, looked.pieces)
    forget_logs.clean(journal, root, Cleaner(entry, looked.pieces, own=True, lines=lines))
    forget_logs.remove_drafts(root)
    forget_logs.compact(connection, vacuum=True)
    write(WriteRequest(note_forgotten, (first.user, [each.entry for each in entries], first.time)))
    log.info("forget_finished", count=len(entry.messages) + len(entry.facts))


def texts_of(connection: apsw.Connection, root: Path, entry: ForgetEntry) -> list[str]:
    """The texts, of very many the longest, as far as the logs still have them: none of them when only the last round
    was cut off."""
    asked, with_files = frozenset(entry.asked), []

    def contents() -> Iterator[str]:
        for path in applying.log_paths(connection, entry):
            for each in _read(root / path, messages.parse_message):
                if each.rowid in asked and FORGOTTEN not in each.metadata:
                    if FILES in each.metadata:
                        with_files.append(each)
                    yield each.content

    texts = heapq.nlargest(most_pieces(len(asked)), contents(), key=len)
    texts += attachments.texts_of(attachments.only_of(connection, entry.user, with_files))
    own_tasks = {(entry.user, each) for each in entry.tasks if tasks.get(connection, entry.user, each) is None}
    if entry.facts or own_tasks:
        for path in sorted((root / changes.MEMORY).glob("*.jsonl")):
            for each in _read(path, memory_journal.read):
                if each.kind is FACT and each.value is not None and each.value.id in entry.facts:
                    texts.append(each.value.text)
                if each.kind is tasks.TASK and each.value is not None and (each.user, each.key) in own_tasks:
                    texts.append(each.value.message)
    return texts


def _read(path: Path, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """The records of a log, without those that are none."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                with suppress(*FAULTS):
                    yield read(parse(line))
