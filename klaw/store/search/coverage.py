"""The ``covered`` invariant: every message is in the window, in a live summary, or can be found by search; else it is
counted and shown. Here is what the indexes have of each message, where the window begins, and repairs.

Reads the shadow tables of full text (one row a document, with its number of words) and of vec0 (one row a vector):
plain b-trees, so a range of messages costs a few look-ups each and no search.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apsw
import attrs

from klaw.actor.failure import error_class
from klaw.domain.message import MessageKind, Role, is_searchable
from klaw.domain.names import ChatId
from klaw.errors import StorageError
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.engine.tokenizer import words
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages, summaries
from klaw.store.kinds.messages import MESSAGE, SESSION
from klaw.store.kinds.turns import TURN
from klaw.store.search import vectors

LAST_ROWID = (1 << 63) - 1
NAMED = 1_000
"""Messages of a chat that are kept by number; of more only the count. At least as many as a window can show."""
BATCH_ROWS = 2_000


@attrs.frozen(kw_only=True)
class IndexRow:
    rowid: int
    chat: ChatId
    seq: int
    searchable: bool
    """``domain.message.is_searchable``; the others are not searched by design."""
    words: int | None
    """Words that full text has of it; None when it has no row there."""
    vector: bool
    marked: bool
    """The message is marked as having a vector."""
    silent: bool = False
    """Neither index finds it, and it holds no word that could ("…", a picture of a smile)."""

    @property
    def findable(self) -> bool:
        return bool(self.words) or self.vector

    @property
    def lost(self) -> bool:
        return self.searchable and not self.findable and not self.silent


@attrs.frozen(kw_only=True)
class Damage:
    """Rows (by rowid) where index and messages disagree."""

    missing_texts: tuple[int, ...] = ()
    """Searchable messages without a row in full text."""
    lost_vectors: tuple[int, ...] = ()
    """Marked as embedded, and without a vector: nothing would ever make it again."""
    unmarked_vectors: tuple[int, ...] = ()
    """Not marked, and with a vector: making it again would fail."""
    orphan_vectors: tuple[int, ...] = ()
    """Vectors without a message."""
    orphan_texts: tuple[int, ...] = ()
    """Rows of full text without a message, or of one that is not searched by design."""

    @property
    def repairable(self) -> bool:
        """Whether there is something that the writer can repair by itself; orphans of full text it cannot."""
        return any(self.pieces(1))

    def pieces(self, size: int) -> Iterator["Damage"]:
        """The same in parts of at most ``size`` rows each, without what cannot be repaired."""
        for name, rows in attrs.asdict(attrs.evolve(self, orphan_texts=()), recurse=False).items():
            for start in range(0, len(rows), size):
                yield Damage(**{name: rows[start : start + size]})

    def __add__(self, other: "Damage") -> "Damage":
        mine = attrs.asdict(self, recurse=False)
        return Damage(**{name: rows + getattr(other, name) for name, rows in mine.items()})


def damage_of(rows: Iterable[IndexRow]) -> Damage:
    known = list(rows)
    return Damage(
        missing_texts=tuple(row.rowid for row in known if row.searchable and row.words is None),
        lost_vectors=tuple(row.rowid for row in known if row.marked and not row.vector),
        unmarked_vectors=tuple(row.rowid for row in known if row.vector and not row.marked),
        orphan_texts=tuple(row.rowid for row in known if not row.searchable and row.words is not None),
    )


@attrs.define(kw_only=True)
class ChatTally:
    """Counts of one chat; messages are added in the order of their numbers."""

    messages: int = 0
    not_searchable: int = 0
    """Commands, their answers, marks of ``/new``, tool rows."""
    in_text: int = 0
    with_vector: int = 0
    wordless: int = 0
    """Searchable, without a word and without a vector: no question can name them."""
    lost: int = 0
    """Messages that search cannot find, in the window or not; ``newest_lost`` are their numbers, of many the newest."""
    newest_lost: deque[int] = attrs.Factory(lambda: deque(maxlen=NAMED))

    def add(self, row: IndexRow) -> None:
        self.messages += 1
        self.not_searchable += not row.searchable
        self.in_text += row.searchable and bool(row.words)
        self.with_vector += row.vector
        self.wordless += row.searchable and row.silent
        if row.lost:
            self.lost += 1
            self.newest_lost.append(row.seq)

    def uncovered(self, window_start: int, summarised: Sequence[tuple[int, int]] = ()) -> int:
        """How many messages can neither be found nor stand in the window or in a live summary (``summarised``)."""
        ranges = (*summarised, (window_start, LAST_ROWID))
        return self.lost - sum(any(first <= seq <= last for first, last in ranges) for seq in self.newest_lost)

    def uncovered_seqs(self, window_start: int) -> list[int]:
        """The numbers of those, as far as they were kept."""
        return [seq for seq in self.newest_lost if seq < window_start]


Tallies: TypeAlias = dict[ChatId, ChatTally]


def add_rows(tallies: Tallies, rows: Iterable[IndexRow]) -> None:
    for row in rows:
        tallies.setdefault(row.chat, ChatTally()).add(row)


# -- what the indexes have ---------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Batch:
    rows: Sequence[IndexRow]
    damage: Damage
    last_rowid: int


_ROWS = f"""
SELECT m.rowid, m.chat_id, m.seq, m.role, m.type, m.embedded, d.sz, v.rowid IS NOT NULL,
    CASE WHEN (d.sz IS NULL OR substr(d.sz, 1, 1) = x'00') AND v.rowid IS NULL THEN m.content END
FROM {MESSAGE.table} m
LEFT JOIN messages_fts_docsize d ON d.id = m.rowid LEFT JOIN vec_messages_rowids v ON v.rowid = m.rowid
WHERE m.rowid > ? AND m.rowid <= ? ORDER BY m.rowid LIMIT ?
"""  # noqa: S608 - a constant name
_ORPHANS = f"""
SELECT i.{{key}} FROM {{index}} i LEFT JOIN {MESSAGE.table} m ON m.rowid = i.{{key}}
WHERE i.{{key}} > ? AND i.{{key}} <= ? AND m.rowid IS NULL
"""  # noqa: S608 - likewise
_ORPHAN_VECTORS = _ORPHANS.format(index="vec_messages_rowids", key="rowid")
_ORPHAN_TEXTS = _ORPHANS.format(index="messages_fts_docsize", key="id")


def read(connection: apsw.Connection, after_rowid: int, last_rowid: int, limit: int) -> Batch:
    """The next ``limit`` messages after a rowid, and what in that range belongs to no message."""
    with snapshot(connection):
        found = rows(connection, after_rowid, last_rowid, limit)
        end = found[-1].rowid if len(found) == limit else last_rowid
        orphans = Damage(
            orphan_vectors=tuple(row[0] for row in connection.execute(_ORPHAN_VECTORS, (after_rowid, end))),
            orphan_texts=tuple(row[0] for row in connection.execute(_ORPHAN_TEXTS, (after_rowid, end))),
        )
    return Batch(rows=found, damage=damage_of(found) + orphans, last_rowid=end)


def rows(connection: apsw.Connection, after_rowid: int, last_rowid: int, limit: int) -> list[IndexRow]:
    return [_row(row) for row in connection.execute(_ROWS, (after_rowid, last_rowid, limit)).fetchall()]


def _row(row: Sequence[Any]) -> IndexRow:
    rowid, chat, seq, role, kind, marked, sizes, vector, content = row
    searchable = is_searchable(Role(role), MessageKind(kind))
    return IndexRow(
        rowid=rowid,
        chat=ChatId(chat),
        seq=seq,
        searchable=searchable,
        words=None if sizes is None else word_count(sizes),
        vector=bool(vector),
        marked=bool(marked),
        silent=searchable and content is not None and next(iter(words(content)), None) is None,
    )


def word_count(sizes: bytes) -> int:
    """Words of a document's first column (the message's own text): the first number of ``sz`` of FTS5's docsize table,
    which has one SQLite varint for each column, seven bits a byte, the highest first."""
    count = 0
    for byte in sizes[:9]:
        count = count << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return count


_LAST_WINDOW = f"""
SELECT coalesce(receipt ->> '$.window.first_seq', first_seq), coalesce(receipt ->> '$.window.held', 0)
FROM {TURN.table} WHERE chat_id = ?1 AND segment = ?2 AND receipt ->> '$.window' IS NOT NULL
ORDER BY last_seq DESC, ended_at DESC LIMIT 1
"""  # noqa: S608 - a constant name
_NEWEST_OF_SEGMENT = f"""
SELECT min(seq) FROM (
    SELECT seq FROM {MESSAGE.table}
    WHERE chat_id = ? AND seq >= ? AND role <> 'system' AND type IN ('text', 'scheduled')
    ORDER BY seq DESC LIMIT ?)
"""  # noqa: S608 - likewise


def window_start(connection: apsw.Connection, chat: ChatId, sliding_window: int) -> int:
    """The number of the first message in a chat's window (after the last one's when it is empty): what the last turn of
    the segment showed and what came after it, but never more than ``sliding_window`` messages without those of tools,
    unless that turn held more until they are summarised."""
    session = messages.session(connection, chat)
    if session is None:
        return 0
    newest = connection.execute(_NEWEST_OF_SEGMENT, (chat, session.segment_start, sliding_window)).get
    shown, held = connection.execute(_LAST_WINDOW, (chat, session.segment)).fetchone() or (0, 0)
    if held:
        return int(shown)
    return max(session.last_seq + 1 if newest is None else int(newest), int(shown))


def summarised(connection: apsw.Connection, chat: ChatId) -> list[tuple[int, int]]:
    """Ranges of messages of a chat's current segment for which a live summary stands."""
    session = messages.session(connection, chat)
    found = summaries.live(connection, chat, session.segment) if session is not None else []
    return [(summary.first_seq, summary.last_seq) for summary in found]


# -- repairs: in the writer's thread -----------------------------------------------------------------------------------


_HAS_VECTOR = "SELECT count(*) FROM vec_messages_rowids WHERE rowid = ?"


def repair(tx: Transaction, damage: Damage) -> tuple[int, int]:
    """Repair what of a damage is still there. Missing rows of full text are made. What should have a vector and has
    none is unmarked, so that the embedder finds it; a vector without its mark, or without its message, is dropped.
    Returns how many rows of full text were repaired, and how many vectors. Raises StorageError where an index is
    damaged itself: that must not end the process at every start."""
    connection = tx.connection
    try:
        missing = (rowid for rowid in damage.missing_texts if not MESSAGE.has_text(connection, rowid))
        texts = sum(messages.index_again(connection, rowid) for rowid in missing)
        found = sum(_forget_lost(connection, rowid) for rowid in damage.lost_vectors)
        found += sum(_drop_stray(connection, rowid) for rowid in (*damage.unmarked_vectors, *damage.orphan_vectors))
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
        raise StorageError(f"the index could not be repaired ({error_class(error)})") from error
    return texts, found


def _forget_lost(connection: apsw.Connection, rowid: int) -> bool:
    if connection.execute(_HAS_VECTOR, (rowid,)).get:
        return False
    unmark = f"UPDATE {MESSAGE.table} SET embedded = 0 WHERE rowid = ? AND embedded = 1"  # noqa: S608 - a constant name
    connection.execute(unmark, (rowid,))
    return connection.changes() > 0


def _drop_stray(connection: apsw.Connection, rowid: int) -> bool:
    marked = f"SELECT embedded FROM {MESSAGE.table} WHERE rowid = ?"  # noqa: S608 - a constant name
    if connection.execute(marked, (rowid,)).get == 1 or not connection.execute(_HAS_VECTOR, (rowid,)).get:
        return False
    connection.execute("DELETE FROM vec_messages WHERE rowid = ?", (rowid,))
    return True


# -- for `klaw doctor` -------------------------------------------------------------------------------------------------

_CHATS = f"SELECT chat_key, chat_id FROM {SESSION.table} ORDER BY chat_key"  # noqa: S608 - constant names
_STRAY_TEXTS = f"""
SELECT count(*) FROM messages_fts f JOIN {MESSAGE.table} m ON m.rowid = f.rowid
WHERE messages_fts MATCH ? AND m.chat_id <> ?
"""  # noqa: S608 - likewise
_STRAY_VECTORS = f"""
SELECT count(*) FROM vec_messages_rowids v
JOIN vec_messages_chunks c USING (chunk_id)
JOIN {MESSAGE.table} m ON m.rowid = v.rowid
JOIN {SESSION.table} s ON s.chat_id = m.chat_id
WHERE c.partition00 <> s.chat_key
"""  # noqa: S608 - likewise


@attrs.frozen(kw_only=True)
class WholeLook:
    tallies: Tallies
    window_starts: Mapping[ChatId, int]
    """The window's first seq, for chats with messages that search cannot find."""
    damage: Damage
    stray_texts: int
    """Rows of full text, as ``stray_vectors`` are vectors, that stand under another chat than their message's."""
    stray_vectors: int
    model: str | None
    waiting: int
    """Messages that wait for a vector of the stored model."""


def look_at_all(connection: apsw.Connection, sliding_window: int, min_tokens: int) -> WholeLook:
    """Look at every message. In steps, so that the database can be written meanwhile."""
    tallies: Tallies = {}
    damage, at = Damage(), 0
    while at < LAST_ROWID:
        batch = read(connection, at, LAST_ROWID, BATCH_ROWS)
        add_rows(tallies, batch.rows)
        damage += batch.damage
        at = batch.last_rowid
    with snapshot(connection):
        lost = [chat for chat, tally in tallies.items() if tally.lost]
        return WholeLook(
            tallies=tallies,
            window_starts={chat: window_start(connection, chat, sliding_window) for chat in lost},
            damage=damage,
            stray_texts=sum(
                connection.execute(_STRAY_TEXTS, (f'{{scope}}: "c{key}"', chat)).get
                for key, chat in connection.execute(_CHATS).fetchall()
            ),
            stray_vectors=int(connection.execute(_STRAY_VECTORS).get),
            model=vector_model.current_id(connection) or None,
            waiting=vectors.count_unembedded(connection, min_tokens),
        )
