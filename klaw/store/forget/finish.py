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
from klaw.store.forget.execute import ForgetEntry, merged, together
from klaw.store.forget.logs import Cleaner
from klaw.store.forget.quotes import QuotesFound
from klaw.store.kinds import attachments, forgotten, messages, records, tasks
from klaw.store.kinds.people import PERSON
from klaw.store.kinds.tasks import TASK

T = TypeVar("T")

MOST_AT_START = 500
"""Messages of a forgetting that a start finishes; a larger one is finished beside the running server."""

log = structlog.get_logger("klaw.forget")


def interrupted(connection: apsw.Connection, *, large: bool) -> list[list[ForgetEntry]]:
    """The forgettings that a kill interrupted, each with its entries so far: the large ones, or the others."""
    return [each for each in together(execute.pending(connection)) if (len(each[0].asked) > MOST_AT_START) == large]


def finish(connection: apsw.Connection, journal: Journal, root: Path) -> None:
    """Finish what is not large. Raises OSError, apsw.Error, StorageError."""
    for entries in interrupted(connection, large=False):
        _finish(connection, journal, root, entries)


def _finish(connection: apsw.Connection, journal: Journal, root: Path, entries: list[ForgetEntry]) -> None:
    def write(function: Callable[..., T], *args: Any) -> T:
        (outcome,) = commit_group(connection, journal, [WriteRequest(function, args)])
        if outcome.error is not None:
            raise outcome.error
        done: T = outcome.value
        return done

    first = entries[0]
    if rest := forgotten.left(connection, first.user, first.asked):
        entries.append(write(execute.forget_rest, first.user, rest, first.time))
    entry = merged(entries)
    found = look_again(connection, entry)
    write(execute.redact_again, entry, found)
    cleaner = Cleaner(connection, entry, found.finder)
    logs.clean(journal, root, cleaner)
    logs.remove_copies(root, entry, found.finder)
    cleaner.own = True
    logs.clean(journal, root, cleaner)
    logs.remove_drafts(root)
    logs.compact(connection, vacuum=True)
    write(execute.note_forgotten, first.user, [each.entry for each in entries], first.time)
    log.info("forget_finished", count=len(entry.messages) + len(entry.facts))


def look_again(connection: apsw.Connection, entry: ForgetEntry) -> QuotesFound:
    """Look for quotes of what was forgotten, as far as the logs still say it: they do not when only the last round was
    cut off. Of very many texts for the longest."""
    asked, with_files, root = frozenset(entry.asked), [], Path(connection.filename).parent

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
            for change in _read(path, records.read):
                if change.user == entry.user and (change.kind.what, change.key) in gone and change.value is not None:
                    texts += change.kind.said(change.kind.fields(change.value))
    return quotes.look(connection, entry.user, texts, entry.messages, entry.asked)


def _read(path: Path, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """The records of a log, without lines that cannot be read."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                with suppress(*FAULTS):
                    yield read(parse(line))
