"""SQL of forgetting: what was made of messages, and taking them and what quotes them out of the database.

A forgotten message keeps its row, number and id, so that no client misses a number, as a command's row without content:
nothing that reads conversations looks at those. Every question names the user.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import apsw
import attrs

from klaw.convert import JOURNAL, Form
from klaw.domain import context_used
from klaw.domain.context_used import KEY
from klaw.domain.forget import FORGOTTEN, MARK, Quotes, each_text
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import Finder
from klaw.store.changes import Change, Kind, line, path, record
from klaw.store.engine import meta
from klaw.store.engine.connect import snapshot
from klaw.store.engine.full_text import index_row, unindex_row
from klaw.store.engine.transaction import Transaction
from klaw.store.forget import quoting
from klaw.store.forget.entry import ForgetEntry, Forgetting, Forgot, Lines
from klaw.store.forget.quoting import Looked, Place
from klaw.store.forget.scope import Said, Scope, Seen, Wanted, fact_texts, is_read, read_said, scope
from klaw.store.kinds import attachments, chats, facts, messages, people, summaries, topic_changes, topics, turns
from klaw.store.kinds.memory_journal import KINDS
from klaw.store.rows import dumps
from klaw.store.search import coverage, vector_codes

_PENDING = "forget_pending"
"""In ``meta``, with ``:`` and its number behind it: a forgetting that may not be finished in the logs. Without a
number: a list of several, by earlier versions."""
_FTS = ("messages_fts", "facts_fts", "topics_fts", "tool_notes_fts", "chunks_fts")

# -- looking ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Look:
    """What belongs to something and what quotes it, of the same moment."""

    scope: Scope
    looked: Looked
    said: Said
    seen: Seen


def look(connection: apsw.Connection, wanted: Wanted, *, with_facts: bool) -> Look:
    """Look for it, and for what quotes it."""
    with snapshot(connection):
        said = read_said(connection, wanted, with_facts=with_facts)
        found = scope(connection, wanted, with_facts=with_facts, said=said)
        looked = quoting.look(connection, wanted.user, found.texts, found.rowids, found.asked)
        return Look(found, looked, said, Seen.of(connection, wanted, said))


def is_current(connection: apsw.Connection, wanted: Wanted, look: Look) -> bool:
    """Whether a look read what there is now; facts, topics and the like may be others."""
    return is_read(connection, wanted, look.said, look.seen)


# -- carrying out ------------------------------------------------------------------------------------------------------

_ERASE = """
UPDATE messages SET role = 'system', type = 'command', content = '', metadata = ?2, tokens = 0, embedded = 0,
    topic_id = NULL WHERE rowid = ?1
"""
_EMPTY = """
UPDATE runs SET message = ?3, result = '', note = NULL,
    details = json_object('usage', json(coalesce(details -> '$.usage', '{}')))
WHERE user_id = ?1 AND id IN (SELECT value FROM json_each(?2))
"""


def tombstone(time: str) -> dict[str, str]:
    """The metadata of a forgotten message's row."""
    return {FORGOTTEN: time}


def journal(tx: Transaction, user: UserId, forgotten: Forgetting, at: str, looked: Looked | None = None) -> Forgot:
    """Carry out a forgetting, and write it into the memory journal. See ``apply``."""
    meta.put(tx.connection, meta.FORGET_COMPACT, at)
    change = FORGET.put(user, None, forgotten, at)
    change = attrs.evolve(change, entry=meta.last_entry(tx.connection) + 1)
    done = apply(tx.connection, change, looked)
    meta.put(tx.connection, meta.MEMORY_ENTRY, str(change.entry))
    tx.write(path(change), line(change))
    return done


def apply(connection: apsw.Connection, change: Change[Forgetting], looked: Looked | None = None) -> Forgot:
    """Carry out a change of the memory journal. A database made of logs that were cleaned has nothing to clean.

    Args:
        change: what is forgotten.
        looked: what a look found a moment ago, so that only what was written since is looked through here.
    """
    entry = ForgetEntry.of(change)
    if entry.done is not None:
        _wait_no_more(connection, entry.done)
        return Forgot(entry=entry, pieces=(), own=())
    for table in _FTS:
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('secure-delete', 1)")  # noqa: S608 - constants
    own = tuple(each for each in messages.by_rowids(connection, entry.messages) if each.user == entry.user)
    looked = looked or quoting.look(connection, entry.user, _texts(connection, own, entry), entry.messages, entry.asked)
    for topic in entry.topics:
        topics.end(connection, change, topic, None)
    for chat, number in entry.summaries:
        summaries.remove(connection, chat, number)
    for fact in entry.facts:
        facts.forget(connection, entry.user, fact, dates=fact not in entry.undone)
    _take_out_names(connection, entry)
    if entry.ran:
        connection.execute(_EMPTY, (entry.user, dumps(list(entry.ran)), MARK))
    for person in entry.people:
        people.forget(connection, entry.user, person, dates=person not in entry.undone)
    people.forget_past(connection, entry.user, entry.past)
    people.forget_mentions(connection, entry.user, entry.topics, [message.id for message in own])
    _erase(connection, own, entry)
    for chat in {message.chat for message in own if messages.MODEL_CHOICE in message.metadata}:
        messages.choose_model_again(connection, chat)
    for chat, seq in entry.deleted:
        chats.forget(connection, entry.user, chat, seq, entry.entry)
    topic_changes.forget(connection, entry.user, entry.messages, entry.topics, entry.entry)
    if not entry.knowledge:  # else they may be many, and are done by and by
        blank_receipts(connection, entry.user, (), entry.used)
    redact(connection, entry, looked)
    meta.put(connection, f"{meta.LAST_FORGETTING}{entry.user}", str(entry.entry))
    meta.put(connection, f"{_PENDING}:{entry.entry}", dumps(record(change)))
    return Forgot(entry=entry, pieces=looked.pieces, own=own)


def _texts(connection: apsw.Connection, own: Sequence[Message], entry: ForgetEntry) -> list[str]:
    texts = [each.content for each in own if each.rowid in entry.asked]
    texts += attachments.texts_of(attachments.only_of(connection, entry.user, own))
    for fact in entry.facts:
        texts += fact_texts(connection, entry.user, fact)
    return texts


def _erase(connection: apsw.Connection, own: Sequence[Message], entry: ForgetEntry) -> None:
    for rowid in (each.rowid for each in own if coverage.has_text(connection, each.rowid)):
        unindex_row(connection, "messages", rowid)
    _drop_vectors(connection, own)
    _drop_vectors_behind(connection, own)
    left = topics.topics_of(connection, entry.user, [each.rowid for each in own])
    empty = dumps(tombstone(entry.time))
    connection.executemany(_ERASE, [(each.rowid, empty) for each in own])
    turns.forget_used(connection, [(each.chat, each.seq) for each in own])
    for topic in set(left.values()):  # that the entry does not name: it was made between two starts
        topics.count_again(connection, entry.user, topic, entry.entry, entry.time)


_NEXT = """
SELECT rowid FROM messages
WHERE chat_id = ? AND seq > ? AND role IN ('user', 'assistant') AND type IN ('text', 'scheduled') ORDER BY seq LIMIT 1
"""


def _drop_vectors_behind(connection: apsw.Connection, own: Sequence[Message]) -> None:
    """The message behind one was embedded in the light of it (``memory.passage``): it is embedded again."""
    rowids, places = {each.rowid for each in own}, {(each.chat, each.seq) for each in own}
    last = [each for each in own if (each.chat, each.seq + 1) not in places]
    following = {connection.execute(_NEXT, (each.chat, each.seq)).get for each in last} - {None, *rowids}
    behind = messages.by_rowids(connection, sorted(following))
    _drop_vectors(connection, behind)
    connection.executemany("UPDATE messages SET embedded = 0 WHERE rowid = ?", [(each.rowid,) for each in behind])


def _drop_vectors(connection: apsw.Connection, own: Sequence[Message]) -> None:
    """Overwrite messages' vectors and their codes, and remove the vectors: vec0 leaves the bytes of a removed one."""
    for chat in {each.chat for each in own}:
        session = messages.session(connection, chat)
        if session is not None:
            vector_codes.erase(connection, session.key, [each.rowid for each in own if each.chat == chat])
    for message in own:
        vector = connection.execute("SELECT length(embedding) FROM vec_messages WHERE rowid = ?", (message.rowid,)).get
        if vector is not None:
            zeros = (bytes(vector), message.rowid)
            connection.execute("UPDATE vec_messages SET embedding = ? WHERE rowid = ?", zeros)
            connection.execute("DELETE FROM vec_messages WHERE rowid = ?", (message.rowid,))


def redact(connection: apsw.Connection, entry: ForgetEntry, looked: Looked) -> None:
    """Put MARK in place of each piece wherever a user's rows quote it."""
    quotes = looked.quotes
    if not quotes:
        return
    found = quoting.rows_with(connection, entry.user, quotes, looked, entry.messages, entry.asked)
    for place in quoting.PLACES:
        for row in found[place.table]:
            _redact_row(connection, entry.user, place, row, quotes)


_INDEXED = ("messages", "topics", "tool_notes")
_AGAIN = {
    "messages": (
        "UPDATE messages SET embedded = 0 WHERE rowid = ?",
        """
        UPDATE topics SET chars = (SELECT coalesce(sum(length(content)), 0) FROM messages WHERE topic_id = topics.id)
        WHERE id = (SELECT topic_id FROM messages WHERE rowid = ?)
        """,
        "DELETE FROM vec_topics WHERE rowid = (SELECT topic_id FROM messages WHERE rowid = ?)",
    ),
    "topics": ("DELETE FROM vec_topics WHERE rowid = ?",),
    "tool_notes": (
        "DELETE FROM vec_tool_notes WHERE rowid = ?",
        "UPDATE tool_notes SET vector_model = NULL WHERE rowid = ?",
    ),
}
"""What is made of a row's text is made again."""


def _take_out(connection: apsw.Connection, table: str, row: int | str) -> None:
    """Take a row's old text out of the index, and the vectors that were made of a message."""
    if table in _INDEXED and (table != "messages" or coverage.has_text(connection, int(row))):
        unindex_row(connection, table, int(row))
    if table == "messages":
        own = messages.by_rowids(connection, [int(row)])
        _drop_vectors(connection, own)
        _drop_vectors_behind(connection, own)


def _redact_row(connection: apsw.Connection, user: UserId, place: Place, row: int | str, quotes: Quotes) -> None:
    table, columns = place.table, place.columns
    read = f"SELECT {', '.join(columns)} FROM {table} WHERE {place.key} = ? AND +user_id = ?"  # noqa: S608 - constants
    values = connection.execute(read, (row, user)).fetchone()
    if values is None:
        return
    new = [_redacted(column, value, quotes) for column, value in zip(columns, values, strict=True)]
    if new == list(values):
        return
    _take_out(connection, table, row)
    write = f"UPDATE {table} SET {', '.join(f'{column} = ?' for column in columns)} WHERE {place.key} = ?"  # noqa: S608
    connection.execute(write, (*new, row))
    if table in _INDEXED:
        index_row(connection, table, int(row))
    for statement in _AGAIN.get(table, ()):
        connection.execute(statement, (row,))


def _redacted(column: str, value: str | None, quotes: Quotes) -> str | None:
    if value is None:
        return None
    if column not in quoting.JSON_COLUMNS:
        return str(quotes.taken_out(value))
    document = json.loads(value)
    cut = quotes.taken_out(document)
    return value if cut == document else dumps(cut)


def merge_small_indexes(connection: apsw.Connection) -> None:
    """Merge the indexes in which rows were replaced before they were told to leave no words: what was taken out of them
    is a mark beside the old words until then. That of messages is large, and nothing but forgetting takes words out."""
    for table in _FTS[1:]:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608 - constants


# -- what is not finished ----------------------------------------------------------------------------------------------


def pending(connection: apsw.Connection) -> list[ForgetEntry]:
    """Forgettings that may not be finished in the logs, the oldest first."""
    return [ForgetEntry.of(FORGET.read(each)) for each in _waiting(connection)]


def _waiting(connection: apsw.Connection) -> list[dict[str, Any]]:
    rows = connection.execute("SELECT value FROM meta WHERE key = ?1 OR key GLOB ?1 || ':*'", (_PENDING,))
    values = [json.loads(value) for (value,) in rows]
    found = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return sorted(found, key=itemgetter("entry"))


_LEFT = f"""
SELECT rowid FROM messages WHERE +user_id = ? AND rowid IN (SELECT value FROM json_each(?))
    AND metadata ->> '$.{FORGOTTEN}' IS NULL ORDER BY rowid
"""  # noqa: S608 - a constant
_DAYS = """
SELECT DISTINCT chat_id, substr(created_at, 1, 10) FROM messages
WHERE +user_id = ? AND rowid IN (SELECT value FROM json_each(?)) ORDER BY 1, 2
"""


def left(connection: apsw.Connection, entry: ForgetEntry) -> list[int]:
    """Row ids of the messages that a forgetting names and that are still there."""
    return [rowid for (rowid,) in connection.execute(_LEFT, (entry.user, dumps(list(entry.asked))))]


def log_paths(connection: apsw.Connection, entry: ForgetEntry) -> list[str]:
    """The logs of the messages that a forgetting names."""
    days = connection.execute(_DAYS, (entry.user, dumps(list(entry.asked))))
    return [messages.day_path(ChatId(chat), day) for chat, day in days]


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


# -- names of people, in receipts and runs ----------------------------------------------------------------------------

_RECEIPT = "SELECT receipt FROM turns WHERE user_id = ? AND turn_id = ?"
_PUT_RECEIPT = "UPDATE turns SET receipt = ?3 WHERE user_id = ?1 AND turn_id = ?2"
_RUN = "SELECT message, result, note, error, details, change FROM runs WHERE user_id = ? AND id = ?"
_PUT_RUN = """
UPDATE runs SET message = ?3, result = ?4, note = ?5, error = ?6, details = ?7 WHERE user_id = ?1 AND id = ?2
"""


def _take_out_names(connection: apsw.Connection, entry: ForgetEntry) -> None:
    """Put MARK in place of the names of the entry's people; called while they are still there."""
    if not entry.turns and not entry.runs:
        return
    finder = Finder(tuple(people.own_names(connection, entry.user, entry.people).values()))
    for turn in entry.turns:
        receipt = connection.execute(_RECEIPT, (entry.user, turn)).get
        if receipt is not None:
            connection.execute(_PUT_RECEIPT, (entry.user, turn, _without(finder, receipt)))
    for run in entry.runs:
        row = connection.execute(_RUN, (entry.user, run)).fetchone()
        if row is not None:
            texts = [finder.without(text, MARK) if text else text for text in row[:4]]
            connection.execute(_PUT_RUN, (entry.user, run, *texts, _without(finder, row[4])))


def _without(finder: Finder, document: str) -> str:
    return dumps(each_text(json.loads(document), lambda text: finder.without(text, MARK)))


_GIVEN = f"""
SELECT turn_id FROM turns WHERE user_id = ?1 AND turn_id IN (SELECT value FROM json_each(?2))
    AND instr(receipt, '"{KEY}"') ORDER BY turn_id
"""  # noqa: S608 - a constant


def given_passages(connection: apsw.Connection, user: UserId, own: Sequence[Message]) -> tuple[str, ...]:
    """The turns of a user's answers whose receipts hold texts of passages."""
    turns = dumps(sorted({str(each.metadata["turn"]) for each in own if "turn" in each.metadata}))
    return tuple(str(turn) for (turn,) in connection.execute(_GIVEN, (user, turns)))


def blank_receipts(connection: apsw.Connection, user: UserId, gone: Collection[str], turns: Sequence[str]) -> None:
    """Take the texts of passages out of a user's receipts.

    Args:
        gone: ids of the bases and sources that they are of; none: of all.
        turns: whose receipts.
    """

    def goes(each: Mapping[str, Any]) -> bool:
        return not gone or not {each.get("base"), each.get("source")}.isdisjoint(gone)

    for turn in turns:
        receipt = connection.execute(_RECEIPT, (user, turn)).get
        if receipt is not None:
            connection.execute(_PUT_RECEIPT, (user, turn, dumps(context_used.blank(json.loads(receipt), goes))))


def lines(connection: apsw.Connection, entry: ForgetEntry) -> Lines:
    """What lines of logs are to say after the entry was carried out."""
    receipts, runs = {}, {}
    for turn in (*entry.turns, *entry.used):
        receipt = connection.execute(_RECEIPT, (entry.user, turn)).get
        if receipt is not None:
            receipts[turn] = json.loads(receipt)
    for run in (*entry.runs, *entry.ran):
        row = connection.execute(_RUN, (entry.user, run)).fetchone()
        if row is not None:
            names = ("message", "result", "note", "error")
            runs[run] = {**dict(zip(names, row[:4], strict=True)), "details": json.loads(row[4]), "change": row[5]}
    past = people.past_values(connection, entry.user, entry.past)
    return Lines(people=past, receipts=receipts, runs=runs, now=_now(connection, entry.user))


_STANDING: Mapping[str, str] = {
    "chat": "SELECT s.name, c.title FROM chats AS c JOIN sessions AS s ON s.chat_id = c.chat_id WHERE c.user_id = ?",
    "task": "SELECT name, message FROM tasks WHERE user_id = ?",
    "kb": "SELECT id, name, description FROM kb_bases WHERE user_id = ?",
    "core": "SELECT '', document FROM core_memory WHERE user_id = ?",
}
NO_HISTORY: Mapping[str, tuple[str, ...]] = {
    "chat": ("title",), "task": ("message",), "kb": ("name", "description"), "core": ("document",)
}  # fmt: skip
"""Kinds of the memory journal of which nobody can see or bring back what they said before, and their texts."""


def _now(connection: apsw.Connection, user: UserId) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for what, statement in _STANDING.items():
        for key, *values in connection.execute(statement, (user,)):
            found[what, key] = dict(zip(NO_HISTORY[what], values, strict=True))
    for (what, _), texts in found.items():
        if what == "core":
            texts["document"] = json.loads(texts["document"])
    return found
