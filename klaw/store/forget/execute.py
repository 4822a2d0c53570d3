"""Carrying out a forgetting in the database, and its entry in the memory journal, which has numbers and ids only, never
a text. While the entry waits in ``meta``, the logs are to be cleaned (``forget.logs``); what a kill leaves the next
start finishes.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Annotated, Self

import apsw
import attrs

from klaw.convert import JOURNAL, OMIT, Check, Form
from klaw.domain import core_memory
from klaw.domain.attachment import Attachment
from klaw.domain.fact import FactId
from klaw.domain.forget import PieceFinder, fact_ids, fragments, most_pieces
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import Finder, PersonId
from klaw.domain.task import TaskName, task_name
from klaw.domain.topic import TopicId
from klaw.errors import CoreUnreadable, StorageError
from klaw.store.changes import Change, Kind, RowIds, line, path, record
from klaw.store.engine import meta
from klaw.store.engine.transaction import Transaction
from klaw.store.forget import quotes
from klaw.store.forget.quotes import QuotesFound
from klaw.store.forget.reach import Reach, renewed
from klaw.store.kinds import attachments, chats, facts, forgotten, messages, people, summaries, tasks, topic_changes
from klaw.store.kinds import core_memory as core_files
from klaw.store.kinds.core_memory import CORE, CorePut
from klaw.store.kinds.knowledge import message_files
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.runs import RUN
from klaw.store.kinds.summaries import SUMMARY, read_key, summary_key
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.kinds.topics import end as end_topic
from klaw.store.kinds.turns import TURN
from klaw.store.rows import dumps

_PENDING = "forget_pending"
"""In ``meta``, with ``:`` and its number behind it: a forgetting that may not be finished in the logs. Without a
number: a list of several, by earlier versions."""

_NUMBERED = Annotated[tuple[ChatId, int], Form(read_key, summary_key)]
"""A chat and a number."""


@attrs.frozen(kw_only=True)
class Forgetting:
    """What goes by one entry."""

    messages: RowIds = ()
    """All that go, also those that were made of others."""
    facts: tuple[FactId, ...] = ()
    topics: tuple[TopicId, ...] = ()
    """They end."""
    summaries: tuple[_NUMBERED, ...] = ()
    people: tuple[PersonId, ...] = ()
    past: tuple[int, ...] = ()
    """Entries by which others once had names of these people: they say what those were last."""
    turns: tuple[str, ...] = ()
    """Their receipts lose the names of these people."""
    runs: tuple[str, ...] = ()
    """They lose the names of these people."""
    asked: Annotated[RowIds, OMIT] = attrs.Factory(lambda self: self.messages, takes_self=True)
    """The messages that were named: their words are looked for elsewhere. None when old commands go."""
    ran: Annotated[tuple[str, ...], OMIT] = ()
    """Runs of which nothing but the cost is left."""
    tasks: Annotated[tuple[Annotated[TaskName, Check(task_name)], ...], OMIT] = ()
    """What they ever asked goes."""
    core: Annotated[bool, OMIT] = False
    """Nothing stays of what core memory was before."""
    knowledge: Annotated[tuple[str, ...], OMIT] = ()
    """Ids of knowledge bases and sources that go, with their names and addresses."""
    used: Annotated[tuple[str, ...], OMIT] = ()
    """Turns whose receipts lose the texts of passages: those of ``knowledge``, or if that is empty all."""
    deleted: Annotated[tuple[_NUMBERED, ...], OMIT] = ()
    """Chats that go as a whole, up to a ``seq``, with their titles."""
    undone: Annotated[tuple[str, ...], OMIT] = ()
    """Ids of facts and people that go with the import that brought them: it may bring them again."""
    others: Annotated[Mapping[str, tuple[str, ...]], OMIT] = attrs.Factory(dict)
    """Keys of what goes of other kinds, by their words."""

    @property
    def gone(self) -> dict[str, tuple[str, ...]]:
        """Keys of all that goes as a whole with its history, by the words of kinds."""
        return {**self.others, facts.FACT.what: self.facts, people.PERSON.what: self.people}


@attrs.frozen(kw_only=True)
class ForgetEntry(Forgetting):
    """A forgetting of the memory journal, or the note that an earlier one is finished in every log."""

    entry: int
    time: str
    user: UserId
    done: int | None = None
    """Number of the entry that is finished."""

    @classmethod
    def of(cls, change: Change[Forgetting]) -> Self:
        values = {} if change.value is None else attrs.asdict(change.value, recurse=False)
        return cls(entry=change.entry, time=change.time, user=change.user, done=change.key, **values)


def together(entries: Sequence[ForgetEntry]) -> list[list[ForgetEntry]]:
    """Entries in their order, those of one forgetting together: the first names all messages that others take."""
    found: list[list[ForgetEntry]] = []
    asked: frozenset[int] = frozenset()
    for each in entries:
        same = bool(found) and (found[-1][0].user, found[-1][0].time) == (each.user, each.time)
        if same and each.asked and asked.issuperset(each.asked):
            found[-1].append(each)
        else:
            found.append([each])
            asked = frozenset(each.asked)
    return found


def merged(entries: Sequence[ForgetEntry]) -> ForgetEntry:
    """One forgetting of several entries: the first says all that goes but the messages that went by the others, and
    what was made of those meanwhile."""
    return attrs.evolve(
        entries[0],
        messages=tuple(sorted({one for each in entries for one in each.messages})),
        facts=fact_ids(one for each in entries for one in each.facts),
        topics=tuple(sorted({one for each in entries for one in each.topics})),
        summaries=tuple(sorted({one for each in entries for one in each.summaries})),
        used=tuple(dict.fromkeys(one for each in entries for one in each.used)),
    )


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
    """Take out of the database what a forgetting reaches. ``found`` was read a moment ago; what of it is not current is
    read again. Of the named messages ``most`` go now (None: all), the others by ``forget_rest``. Returns what it
    reaches now, and what was done. Raises StorageError: something of it is not the user's, or not there."""
    connection, user, wanted = tx.connection, found.user, found.wanted
    found = renewed(connection, found)
    known = [people.history(connection, user, person) for person in wanted.people]
    if len(found.asked) != len(wanted.rowids) or not all(known) or found.is_empty:
        raise _not_there()
    core = _core_without(tx, found)
    if wanted.channel:
        people.part(tx, user, wanted.people, at)
    going = {*found.rowids} - set(found.asked[len(found.asked) if most is None else most :])
    # Topics of the rest end with it: the archivist must not find messages without one, and make new ones.
    ended = {*wanted.traces.topics, *topic_changes.ever_with(connection, user, sorted(going))}
    others = {kind.what: found.keys(kind) for kind in KINDS if kind not in (facts.FACT, people.PERSON, SUMMARY, TOPIC)}
    forgetting = Forgetting(
        messages=tuple(sorted(going)),
        facts=found.facts,
        topics=tuple(sorted(ended)),
        summaries=found.keys(SUMMARY),
        people=found.people,
        asked=found.asked,
        ran=found.runs,
        tasks=tuple(sorted(found.going_tasks)),
        core=core is not None,
        turns=wanted.traces.keys(TURN),
        runs=wanted.traces.keys(RUN),
        past=forgotten.past_of_others(connection, user, found.people),
        deleted=wanted.deleted,
        undone=(*wanted.facts, *wanted.people) if wanted.channel else (),
        used=_given(connection, user, [each for each in found.own if each.rowid in going], found.attachments),
        others={what: tuple(map(str, keys)) for what, keys in others.items() if keys},
    )
    done = journal(tx, user, forgetting, at, found.quotes)
    for name in forgetting.tasks:
        if tasks.get(connection, user, name) is not None:
            tx.journal(tasks.TASK.removed(user, name, at))
    if core is not None:
        tx.journal(CORE.put(user, "", core, at))
    if wanted.named is not None:
        chats.take_out_of_titles(tx, user, wanted.traces.keys(chats.CHAT), Finder(wanted.named.names), at)
    _remove_files(tx, user, found.attachments)
    # What cannot be written now the next start writes.
    tx.after_commit.append(lambda: core_files.settle(connection, tx.data_dir))
    return found, done


def forget_rest(tx: Transaction, user: UserId, rowids: Sequence[int], at: str) -> ForgetEntry:
    """Take further messages of a forgetting out of the database; what was made of them went with the first ones. By
    ``at``, the time of the forgetting, the entries belong together. Raises StorageError: one of them is not there."""
    connection = tx.connection
    own = [each for each in messages.whole(connection, rowids) if each.user == user]
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
        used=_given(connection, user, own, files),
    )
    done = journal(tx, user, forgetting, at, QuotesFound())
    _remove_files(tx, user, files)
    return done.entry


def _given(
    connection: apsw.Connection, user: UserId, own: Sequence[Message], files: Sequence[Attachment]
) -> tuple[str, ...]:
    """The turns whose receipts hold texts of passages: those of answers that go, and those given passages of files."""
    of_files = message_files.turns_given(connection, user, files)
    return tuple(sorted({*forgotten.given_passages(connection, user, own), *of_files}))


def _remove_files(tx: Transaction, user: UserId, files: Sequence[Attachment]) -> None:
    message_files.drop(tx, [message_files.document_id(user, each.sha256) for each in files])
    attachments.remove(tx, user, files)


def _not_there() -> StorageError:
    return StorageError("what is to be forgotten is not there any more: nothing was changed")


def _core_without(tx: Transaction, found: Reach) -> CorePut | None:
    """Core memory without what was written of it. None when nothing was ever written, when it stays because nobody
    wants it to go, or when the file cannot be read: a person has to look at it."""
    made = found.effects.core
    try:
        present = core_files.current(tx.connection, tx.data_dir, found.user) if made else None
    except CoreUnreadable:
        return None
    there = [each for each in made if present is not None and each.is_in(present.document)]
    if present is None or (there and not found.with_facts):
        return None
    document = present.document
    for each in there:
        if each.is_in(document):
            document = core_memory.removed(document, each.section, each.key)
    return CorePut(document=document, replaces=present.digest)


def note_forgotten(tx: Transaction, user: UserId, entries: Sequence[int], at: str) -> None:
    for entry in entries:
        tx.journal(FORGET.removed(user, entry, at))


def redact_again(tx: Transaction, entry: ForgetEntry, found: QuotesFound) -> None:
    quotes.redact(tx.connection, entry.user, found, entry.messages, entry.asked)
    forgotten.blank_receipts(tx.connection, entry.user, entry.knowledge, entry.used)


# -- carrying out an entry ---------------------------------------------------------------------------------------------


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
    """Carry out a change of the memory journal. A database made of logs that were cleaned has nothing to clean. With
    quotes that a look found a moment ago, only what was written since is looked through here."""
    entry = ForgetEntry.of(change)
    user, at = entry.user, entry.entry
    if entry.done is not None:
        _wait_no_more(connection, entry.done)
        return ForgetResult(entries=(entry,))
    for kind in KINDS:
        if kind.full_text:
            index = f"{kind.table}_fts"
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('secure-delete', 1)")  # noqa: S608
    own = tuple(each for each in messages.whole(connection, entry.messages) if each.user == user)
    found = found or quotes.look(connection, user, _texts(connection, own, entry), entry.messages, entry.asked)
    for topic in entry.topics:
        end_topic(connection, change, topic, None)
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
    quotes.drop_vectors(connection, own)
    forgotten.erase(connection, user, own, at, entry.time)
    chats.forget_titles(connection, own if entry.asked else (), at)  # none is made of commands
    for chat, seq in entry.deleted:
        chats.forget(connection, user, chat, seq, at)
    topic_changes.forget(connection, user, entry.messages, entry.topics, at)
    if not entry.knowledge:  # else they may be many, and are done by and by
        forgotten.blank_receipts(connection, user, (), entry.used)
        forgotten.forget_sources(connection, entry.used)
    quotes.redact(connection, user, found, entry.messages, entry.asked)
    meta.put(connection, f"{meta.LAST_FORGETTING}{user}", str(at))
    meta.put(connection, f"{_PENDING}:{at}", dumps(record(change)))
    return ForgetResult(entries=(entry,), finder=found.finder)


def _texts(connection: apsw.Connection, own: Sequence[Message], entry: ForgetEntry) -> list[str]:
    asked = frozenset(entry.asked)
    texts = [each.content for each in own if each.rowid in asked]
    texts += attachments.texts_of(attachments.only_of(connection, entry.user, own))
    for kind in KINDS:
        for key in entry.gone.get(kind.what, ()) if kind is not people.PERSON else ():
            texts += kind.texts(connection, entry.user, key)
    return texts


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
