"""Finishing forgettings that a kill interrupted. All functions block; at a start, in its thread."""

import heapq
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import structlog

from klaw.domain.attachment import FILES
from klaw.domain.forget import FORGOTTEN, most_pieces
from klaw.store import changes
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_files import FAULTS, parse
from klaw.store.engine.transaction import WriteRequest, commit_group
from klaw.store.forget import execute, logs, quotes
from klaw.store.forget.journal_entry import ForgetEntry, merged, together
from klaw.store.forget.logs import Cleaner
from klaw.store.kinds import attachments, memory_journal, messages, tasks
from klaw.store.kinds.forgetting import forgotten
from klaw.store.kinds.people import PERSON
from klaw.store.kinds.tasks import TASK

T = TypeVar("T")

MOST_AT_START = 500
"""Messages of a forgetting that a start finishes; a larger one is finished beside the running server."""

log = structlog.get_logger("klaw.forget")


def finish(connection: apsw.Connection, journal: Journal, root: Path) -> int:
    """Finish what a kill interrupted, but what is large. Returns how many forgettings that were. Raises OSError,
    apsw.Error, StorageError."""
    several = [each for each in together(execute.pending(connection)) if len(each[0].asked) <= MOST_AT_START]
    for entries in several:
        _finish(connection, journal, root, entries)
    return len(several)


def interrupted(connection: apsw.Connection) -> list[list[ForgetEntry]]:
    """The large forgettings that a kill interrupted, each with its entries so far."""
    return [each for each in together(execute.pending(connection)) if len(each[0].asked) > MOST_AT_START]


def _finish(connection: apsw.Connection, journal: Journal, root: Path, entries: list[ForgetEntry]) -> None:
    """Finish one forgetting, of one or several entries."""

    def write(*requests: WriteRequest) -> list[Any]:
        outcomes = commit_group(connection, journal, requests)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [outcome.value for outcome in outcomes]

    first = entries[0]
    rest = forgotten.left(connection, first.user, first.asked)
    if rest:
        (more,) = write(WriteRequest(execute.forget_rest, (first.user, rest, first.time)))
        entries.append(more.entry)
    entry = merged(entries)
    found = quotes.look(connection, entry.user, texts_of(connection, root, entry), entry.messages, entry.asked)
    (lines,) = write(WriteRequest(execute.redact_again, (entry, found)))
    logs.clean(journal, root, Cleaner(entry, found.pieces, own=False, lines=lines))
    logs.remove_copies(root, entry, found.pieces)
    logs.clean(journal, root, Cleaner(entry, found.pieces, own=True, lines=lines))
    logs.remove_drafts(root)
    logs.compact(connection, vacuum=True)
    write(WriteRequest(execute.note_forgotten, (first.user, [each.entry for each in entries], first.time)))
    log.info("forget_finished", count=len(entry.messages) + len(entry.facts))


def texts_of(connection: apsw.Connection, root: Path, entry: ForgetEntry) -> list[str]:
    """The texts, of very many the longest, as far as the logs still have them: none of them when only the last round
    was cut off."""
    asked, with_files = frozenset(entry.asked), []

    def contents() -> Iterator[str]:
        for path in forgotten.log_paths(connection, entry.user, entry.asked):
            for each in _read(root / path, messages.parse_message):
                if each.rowid in asked and FORGOTTEN not in each.metadata:
                    if FILES in each.metadata:
                        with_files.append(each)
                    yield each.content

    texts = heapq.nlargest(most_pieces(len(asked)), contents(), key=len)
    texts += attachments.texts_of(attachments.only_of(connection, entry.user, with_files))
    gone = {(what, key) for what, keys in entry.gone.items() if what != PERSON.what for key in keys}
    gone |= {(TASK.what, name) for name in entry.tasks if tasks.get(connection, entry.user, name) is None}
    if gone:
        for path in sorted((root / changes.MEMORY).glob("*.jsonl")):
            for change in _read(path, memory_journal.read):
                if change.user == entry.user and (change.kind.what, change.key) in gone and change.value is not None:
                    texts += change.kind.said(change.kind.fields(change.value))
    return texts


def _read(path: Path, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """The records of a log, without lines that cannot be read."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                with suppress(*FAULTS):
                    yield read(parse(line))
