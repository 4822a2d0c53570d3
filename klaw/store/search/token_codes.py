"""SQL of the codes of messages' tokens (``memory.embed.token_coder``), by which recall compares texts word by word. A
message with a vector has them unless it was embedded while ``autoRag.tokens`` was off or by an earlier version."""

import json
from collections.abc import Mapping, Sequence

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.store.engine import meta
from klaw.store.kinds.messages import MESSAGE

PAGE_ROWS = CLEAR_ROWS = 2_048
"""Messages that one look for missing codes goes over, or whose codes go in one step."""
_CODER = "token_coder"
_COMPLETE_FROM = "token_codes_complete_from"
"""All messages with a vector have codes from this row id on; not there before they were looked through."""


def coder(connection: apsw.Connection) -> str | None:
    """Id of what the stored codes were made by (``memory.embed.token_coder``)."""
    return meta.get(connection, _CODER)


def prepare(connection: apsw.Connection, wanted: str) -> None:
    """``prepare_some`` at once, for a database that nobody waits for."""
    while not prepare_some(connection, wanted):
        pass


def prepare_some(connection: apsw.Connection, wanted: str) -> bool:
    """One bounded step towards a table that holds codes of one coder only; returns whether that is done."""
    if coder(connection) != wanted:
        some = "SELECT rowid FROM token_codes LIMIT ?"
        connection.execute(f"DELETE FROM token_codes WHERE rowid IN ({some})", (CLEAR_ROWS,))  # noqa: S608 - a constant
        if connection.changes() == CLEAR_ROWS:
            return False
        look_again(connection)
        meta.put(connection, _CODER, wanted)
    return True


_PUT = f"""
INSERT OR IGNORE INTO token_codes (rowid, codes) SELECT m.rowid, ?2 FROM {MESSAGE.table} AS m
WHERE m.rowid = ?1 AND m.embedded = 1 AND NOT {meta.forgotten_since("m.user_id", "?3")}
"""  # noqa: S608 - a constant condition


def put(connection: apsw.Connection, codes: Mapping[int, bytes], as_of: int | None = None) -> None:
    """Store codes by row id, unless a message has no vector, or codes, or its user has forgotten since ``as_of``."""
    connection.executemany(_PUT, [(rowid, blob, as_of) for rowid, blob in codes.items()])


_OF = f"""
SELECT t.rowid, t.codes FROM json_each(?1) AS r CROSS JOIN {MESSAGE.table} AS m ON m.rowid = r.value
CROSS JOIN token_codes AS t ON t.rowid = m.rowid WHERE """  # noqa: S608 - a constant name
_OF_SCOPE, _OF_USER = f"{_OF} m.chat_id = ?2 AND m.seq >= ?3 AND m.seq < ?4", f"{_OF} m.user_id = ?2"


def of_scope(
    connection: apsw.Connection, rowids: Sequence[int], chat: ChatId, first_seq: int, end_seq: int
) -> dict[int, bytes]:
    """The codes of some rows of a chat, as far as there are any, by row id."""
    return dict(connection.execute(_OF_SCOPE, (json.dumps(list(rowids)), chat, first_seq, end_seq)))


def of_user(connection: apsw.Connection, rowids: Sequence[int], user: UserId) -> dict[int, bytes]:
    """The same, of a user's chats."""
    return dict(connection.execute(_OF_USER, (json.dumps(list(rowids)), user)))


def read(connection: apsw.Connection, rowid: int) -> bytes | None:
    codes = connection.execute("SELECT codes FROM token_codes WHERE rowid = ?", (rowid,)).get
    return bytes(codes) if codes is not None else None


@attrs.frozen(kw_only=True)
class MissingCodes:
    """Messages with a vector and without codes."""

    rowids: Sequence[int]
    complete_from: int
    """When these have codes, all from this row id on have."""


_PAGE = """
SELECT r.rowid, t.rowid IS NULL FROM (
    SELECT rowid FROM vec_messages_rowids WHERE rowid < ? ORDER BY rowid DESC LIMIT ?) AS r
LEFT JOIN token_codes AS t ON t.rowid = r.rowid ORDER BY r.rowid DESC
"""


def lacking(connection: apsw.Connection, most: int) -> MissingCodes | None:
    """The next ``most`` messages that need codes, the newest first; None when all were looked through."""
    before = int(meta.get(connection, _COMPLETE_FROM) or (1 << 63) - 1)
    if before == 0:
        return None
    page: list[tuple[int, int]] = connection.execute(_PAGE, (before, PAGE_ROWS)).fetchall()  # type: ignore[assignment]
    missing = [rowid for rowid, lacks in page if lacks]
    if len(missing) > most:
        return MissingCodes(rowids=missing[:most], complete_from=missing[most - 1])
    return MissingCodes(rowids=missing, complete_from=page[-1][0] if len(page) == PAGE_ROWS else 0)


def looked_through(connection: apsw.Connection, complete_from: int) -> None:
    """Remember how far that is done."""
    meta.put(connection, _COMPLETE_FROM, str(complete_from))


def look_again(connection: apsw.Connection) -> None:
    """Vectors were stored without codes."""
    meta.remove(connection, _COMPLETE_FROM)
