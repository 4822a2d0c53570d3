"""The requests that change memory, carried out in the writer's transaction; their lines join the group's."""

from pathlib import Path

import apsw
import attrs

from klaw.domain import core_memory as core
from klaw.domain.core_memory import Document
from klaw.domain.fact import Fact, InvalidFact, check
from klaw.domain.names import UserId
from klaw.domain.summary import Summary
from klaw.domain.summary import check as check_summary
from klaw.errors import CoreNotChanged, FactExists, NoSuchFact, SourceForgotten, StorageError, SummaryOutdated
from klaw.store import core_files
from klaw.store.journal import Entry
from klaw.store.memory_records import CoreEntry, FactEntry, MemoryEntry, SummaryEntry, memory_line, memory_path
from klaw.store.memory_requests import (
    ChangeCore,
    NoteFailure,
    OfMemory,
    PutFact,
    PutMemoryFile,
    PutSummary,
    RemoveFact,
    StorePassageVectors,
)
from klaw.store.sql import chunks, facts, forgetting, memory_journal, messages, passages, summaries
from klaw.store.sql.passages import PassageVector
from klaw.store.summary_records import SummaryPut, numbered


def execute_of_memory(
    connection: apsw.Connection, request: OfMemory, entries: list[Entry]
) -> Fact | Document | Summary | int | None:
    """Carry out a request inside a savepoint.

    Raises:
        KlawError: it is refused; the caller takes back what was done.
        ValueError, TypeError, LookupError, apsw.ConstraintError: likewise, a value cannot be stored.
    """
    match request:
        case PutFact():
            return _put_fact(connection, request, entries)
        case RemoveFact():
            return _remove_fact(connection, request, entries)
        case ChangeCore():
            return _change_core(connection, request, entries)
        case StorePassageVectors():
            return passages.store(connection, request.model_id, request.vectors)
        case PutMemoryFile():
            chunks.put_file(connection, request.file, request.chunks, gone=request.gone)
            return None
        case PutSummary():
            return _put_summary(connection, request, entries)
        case NoteFailure():
            summaries.put_failure(connection, request.failure)
            return None


def journal(connection: apsw.Connection, entries: list[Entry], entry: MemoryEntry) -> None:
    """Carry out an entry and add its line. Its number is the next one, whatever it says."""
    numbered = attrs.evolve(entry, entry=memory_journal.last_entry(connection) + 1)
    path, line = memory_path(numbered), memory_line(numbered)
    line.encode()  # a lone surrogate is refused here, for this request only
    memory_journal.apply(connection, numbered)
    entries.append(Entry(path, line))


def check_nothing_forgotten(connection: apsw.Connection, user: UserId, as_of: int | None) -> None:
    """What was read before a forgetting may hold what is forgotten: nothing that is made of it is stored.

    Raises:
        SourceForgotten: the user has forgotten something since an entry of the memory journal.
    """
    if as_of is not None and forgetting.last_of(connection, user) > as_of:
        raise SourceForgotten("something was forgotten since it was read: nothing was changed, ask again")


def _put_fact(connection: apsw.Connection, request: PutFact, entries: list[Entry]) -> Fact:
    fact = request.fact
    try:
        check(fact)
    except InvalidFact as error:
        raise StorageError(f"the fact cannot be stored: {error}") from None
    check_nothing_forgotten(connection, fact.user, request.as_of)
    present = facts.get(connection, fact.user, fact.id)
    if request.expected == "new" and present is not None:
        if present == fact:
            return present  # asked for again
        raise FactExists(present.id)
    if request.expected == "existing" and present is None:
        raise NoSuchFact
    if request.supersedes is not None:
        _supersede(connection, request, entries)
    same = facts.same_text(connection, fact.user, fact.text, fact.id) if fact.active else None
    if same is not None:
        raise FactExists(same.id)
    journal(connection, entries, FactEntry(entry=0, time=fact.updated_at, user=fact.user, id=fact.id, fact=fact))
    rowid = facts.rowid_of(connection, fact.user, fact.id)
    if request.vector is not None and fact.active and rowid is not None:
        made = PassageVector("fact", rowid, fact.text, request.vector.vector)
        passages.store(connection, request.vector.model_id, [made])
    return fact


def _supersede(connection: apsw.Connection, request: PutFact, entries: list[Entry]) -> None:
    newer = request.fact
    assert request.supersedes is not None
    older = facts.get(connection, newer.user, request.supersedes)
    if older is None or not older.active:
        raise NoSuchFact
    past = attrs.evolve(older, superseded_by=newer.id, updated_at=newer.updated_at)
    check(past)
    journal(connection, entries, FactEntry(entry=0, time=newer.updated_at, user=newer.user, id=past.id, fact=past))


def _remove_fact(connection: apsw.Connection, request: RemoveFact, entries: list[Entry]) -> Fact:
    present = facts.get(connection, request.user, request.id)
    if present is None:
        raise NoSuchFact
    journal(connection, entries, FactEntry(entry=0, time=request.at, user=request.user, id=request.id, fact=None))
    return present


def _put_summary(connection: apsw.Connection, request: PutSummary, entries: list[Entry]) -> Summary:
    """Refused when the segment is over or the summaries are not those that it was made from: another one may be there
    already, and two must not speak for the same messages, nor leave one out between them."""
    new = request.summary
    check_summary(new)
    session = messages.session(connection, new.chat)
    if session is None or session.user != new.user or session.segment != new.segment:
        raise SummaryOutdated("the segment is over")
    check_nothing_forgotten(connection, new.user, request.as_of)
    present = {each.number: each for each in summaries.live(connection, new.chat, new.segment)}
    covered = summaries.covered_to(connection, new.chat, new.segment)
    replaced = [present.pop(number, None) for number in request.supersedes]
    if None in replaced or any(present.pop(number, None) is None for number in request.evicts):
        raise SummaryOutdated("it was made from summaries that are not there any more")
    held = [each for each in replaced if each is not None]
    first = min([new.first_seq, *(each.first_seq for each in held)])
    if (
        first != new.first_seq
        or not covered < new.last_seq <= session.last_seq
        or new.first_seq < session.segment_start
        or any(each.last_seq >= new.first_seq for each in present.values())
        or (not held and new.first_seq <= covered)
    ):
        raise SummaryOutdated("its range does not follow the summaries that are there")
    number = summaries.next_number(connection, new.chat)
    put = SummaryPut(
        summary=numbered(new, number), supersedes=request.supersedes, evicts=request.evicts, notes=request.notes
    )
    journal(
        connection,
        entries,
        SummaryEntry(entry=0, time=new.created_at, user=new.user, chat=new.chat, number=number, put=put),
    )
    summaries.remove_failure(connection, new.chat)
    return put.summary


def _change_core(connection: apsw.Connection, request: ChangeCore, entries: list[Entry]) -> Document:
    present = core_files.current(connection, _data_dir(connection), request.user)
    try:
        if request.value is None:
            document = core.removed(present.document, request.section, request.key)
        else:
            document = core.updated(present.document, request.section, request.key or "", request.value)
    except core.CoreRefused as error:
        raise CoreNotChanged(str(error)) from None
    entry = CoreEntry(entry=0, time=request.at, user=request.user, document=document, replaces=present.digest)
    journal(connection, entries, entry)
    return document


def settle_core(connection: apsw.Connection) -> bool:
    """Write the core memory files after a commit. False when one could not be written; the next start tries again."""
    return core_files.settle(connection, _data_dir(connection)) == 0


def _data_dir(connection: apsw.Connection) -> Path:
    """The database is in the data folder, as the logs are."""
    return Path(connection.filename).parent
