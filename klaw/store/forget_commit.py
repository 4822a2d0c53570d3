"""The requests of forgetting, carried out in the writer's thread."""

import apsw

from klaw.errors import StorageError
from klaw.store import forget_logs
from klaw.store.forget_records import ForgetEntry, Forgot
from klaw.store.forget_requests import AloneForForgetting, CleanLogs, Forget, OfForgetting
from klaw.store.journal import Entry, Journal
from klaw.store.memory_records import memory_line, memory_path
from klaw.store.sql import forgetting, memory_journal, meta, people, person_past
from klaw.store.sql.forget_scope import scope
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
        len(found.own) != len(request.messages)
        or not all(known)
        or not (found.own or found.facts or found.people or found.topics or found.summaries)
    ):
        raise StorageError("what is to be forgotten is not there any more: nothing was changed")
    entry = ForgetEntry(
        entry=number,
        time=request.at,
        user=request.user,
        messages=tuple(sorted(each.rowid for each in found.own)),
        facts=found.facts,
        topics=found.topics,
        summaries=found.summaries,
        people=found.people,
        turns=request.extra.turns,
        runs=request.extra.runs,
        past=person_past.past_of_others(connection, request.user, found.people),
    )
    meta.put(connection, meta.FORGET_COMPACT, request.at)
    return _carry_out(connection, entry, entries, request.looked)


def _carry_out(
    connection: apsw.Connection, entry: ForgetEntry, entries: list[Entry], looked: Looked | None = None
) -> Forgot:
    done = forgetting.apply(connection, entry, looked)
    meta.put(connection, memory_journal.ENTRY, str(entry.entry))
    entries.append(Entry(memory_path(entry), memory_line(entry)))
    return done


def execute_alone(connection: apsw.Connection, journal: Journal, request: AloneForForgetting) -> int | None:
    """Carry out a request between two groups.

    Raises:
        OSError, apsw.Error: nothing was lost; the next start goes on.
    """
    if isinstance(request, CleanLogs):
        return sum(journal.rewrite(path, request.cleaner.line_of(path)) for path in request.paths)
    forget_logs.compact(connection, vacuum=request.vacuum)
    return None
