"""The requests of forgetting, carried out in the writer's thread."""

from pathlib import Path

import apsw

from klaw.domain import core_memory
from klaw.domain.core_memory import Document
from klaw.errors import CoreUnreadable, StorageError
from klaw.store import core_files, forget_logs
from klaw.store.forget_records import ForgetEntry, Forgot
from klaw.store.forget_requests import AloneForForgetting, CleanLogs, Forget, OfForgetting
from klaw.store.journal import Entry, Journal
from klaw.store.memory_commit import journal
from klaw.store.memory_records import CoreEntry, TaskEntry, memory_line, memory_path
from klaw.store.sql import forgetting, memory_journal, meta, people, person_past, tasks
from klaw.store.sql.forget_scope import Scope, scope
from klaw.store.sql.quoting import Looked


def execute_of_forgetting(connection: apsw.Connection, request: OfForgetting, entries: list[Entry]) -> Forgot | None:
    """Carry out a request inside a savepoint.

    Raises:
        StorageError: there is nothing of it; the caller takes back what was done.
    """
    number = memory_journal.last_entry(connection) + 1
    if not isinstance(request, Forget):
        entry = ForgetEntry(entry=number, time=request.at, user=request.user, done=request.entry)
        _carry_out(connection, entry, entries)
        return None
    found = scope(
        connection,
        request.user,
        request.messages,
        request.facts,
        with_facts=request.with_facts,
        extra=request.extra,
    )
    known = [people.history(connection, request.user, person) for person in request.extra.people]
    if (
        len(found.asked) != len(request.messages)
        or not all(known)
        or not (found.asked or found.facts or found.people or found.topics or found.summaries)
    ):
        raise StorageError("what is to be forgotten is not there any more: nothing was changed")
    present, document = _core_without(connection, found)
    entry = ForgetEntry(
        entry=number,
        time=request.at,
        user=request.user,
        messages=tuple(sorted(each.rowid for each in found.own)),
        facts=found.facts,
        topics=found.topics,
        summaries=found.summaries,
        people=found.people,
        asked=found.asked,
        ran=found.runs,
        tasks=(*found.changed_tasks, *(each.name for each in found.tasks if request.with_facts)),
        core=document is not None,
        turns=request.extra.turns,
        runs=request.extra.runs,
        past=person_past.past_of_others(connection, request.user, found.people),
    )
    meta.put(connection, meta.FORGET_COMPACT, request.at)
    done = _carry_out(connection, entry, entries, request.looked)
    gone = {each.name for each in found.tasks}
    for name in entry.tasks:  # what earlier lines say is taken out of them, so a line says what holds now
        now = tasks.get(connection, request.user, name)
        if now is not None:
            left = None if name in gone else now
            journal(connection, entries, TaskEntry(entry=0, time=request.at, user=request.user, name=name, task=left))
    if document is not None:
        journal(
            connection,
            entries,
            CoreEntry(entry=0, time=request.at, user=request.user, document=document, replaces=present),
        )
    return done


def _core_without(connection: apsw.Connection, found: Scope) -> tuple[str, Document | None]:
    """The digest of core memory now, and what it is to be without what was written of it. None when nothing was ever
    written, when it stays because nobody wants it to go, or when the file cannot be read: a person has to look at it.
    """
    if not found.core:
        return "", None
    try:
        present = core_files.current(connection, Path(connection.filename).parent, found.user)
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


def _carry_out(
    connection: apsw.Connection, entry: ForgetEntry, entries: list[Entry], looked: Looked | None = None
) -> Forgot:
    done = forgetting.apply(connection, entry, looked)
    meta.put(connection, memory_journal.ENTRY, str(entry.entry))
    entries.append(Entry(memory_path(entry), memory_line(entry)))
    return done


def execute_alone(connection: apsw.Connection, logs: Journal, request: AloneForForgetting) -> int | None:
    """Carry out a request between two groups.

    Raises:
        OSError, apsw.Error: nothing was lost; the next start goes on.
    """
    if isinstance(request, CleanLogs):
        return sum(logs.rewrite(path, request.cleaner.line_of(path)) for path in request.paths)
    forget_logs.compact(connection, vacuum=request.vacuum)
    return None
