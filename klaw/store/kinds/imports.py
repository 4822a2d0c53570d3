"""Messages that came from other programs. Which import brought a message stands in its channel, so there is no table
of imports: an import is there as long as a message of it is."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import apsw
import attrs

from klaw import atomic_file
from klaw.config.schema import AttachmentsConfig
from klaw.domain import tokens
from klaw.domain.forget import FORGOTTEN
from klaw.domain.imported import ORIGIN, WITH_TOPICS, ImportId, Said, numbered
from klaw.domain.message import Kind, NewMessage
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.errors import IdConflict
from klaw.store.engine.transaction import Stopped, Transaction, checkpoint
from klaw.store.kinds import attachments, chats, messages

MOST_AGAIN = 9
"""So often what one and the same export brings can be undone and imported again."""

_FROM_IMPORT = f"channel GLOB '{ORIGIN}*' AND role <> 'system'"
_LIVE = f"FROM messages INDEXED BY messages_imported WHERE user_id = ?1 AND channel = ?2 AND {_FROM_IMPORT}"


@attrs.frozen(kw_only=True)
class Put:
    """What became of a part of a chat; beginnings of segments are not counted."""

    chat: ChatId
    added: int
    known: int
    """Were here already, or are forgotten."""
    elsewhere: int
    """Are here in another chat."""
    logs: frozenset[str]
    """That were written to."""


def put(
    tx: Transaction,
    user: UserId,
    origin: ImportId,
    said: Sequence[Said],
    *,
    prefix: str,
    name: str,
    title: str,
    topics: bool,
    into: ChatId | None,
    at: str,
    limits: AttachmentsConfig,
) -> Put:
    """Store messages of one chat of an export. What is here already is left as it is.

    Args:
        tx: the transaction.
        user, origin: whose, and which import.
        said: in their order.
        prefix: of the ids of all messages of the chat; empty: ids of another Klaw.
        name: of the chat, if it is not here yet; where that is taken a number is added.
        title: it then gets.
        topics: whether topics may be made of it.
        into: the chat that an earlier part of the same was put into.
        at: the time now, ISO-8601 UTC with milliseconds.
        limits: of files.

    Raises:
        AttachmentRefused: a file was not kept before, or those of a message are too large.
    """
    chat = into or _found(tx.connection, user, prefix, said)
    new = chat is None
    chat = chat or _free(tx.connection, user, name)
    found: Counter[str] = Counter()
    undone: dict[str, bool] = {}
    for each in said:
        message = _message(user, chat, origin, each, topics=topics)
        message = attrs.evolve(message, id=_id(tx.connection, user, each.id, undone))
        message = attachments.with_files(tx, message, each.files, limits)
        try:
            became = "known" if messages.append_one(tx, message).repeated else "added"
        except IdConflict:
            became = "elsewhere"
        found[became] += each.type is not Kind.SESSION_BREAK
    if new and title and found["added"]:
        chats.rename(tx, user, chat, title, at)
    logs = frozenset(each.path for each in tx.entries)
    return Put(chat=chat, added=found["added"], known=found["known"], elsewhere=found["elsewhere"], logs=logs)


def _message(user: UserId, chat: ChatId, origin: ImportId, said: Said, *, topics: bool) -> NewMessage:
    return NewMessage(
        id=said.id,
        chat=chat,
        user=user,
        channel=f"{ORIGIN}{origin}",
        role=said.role,
        type=said.type,
        content=said.content,
        tokens=tokens.estimate(said.content),
        created_at=said.created_at,
        metadata={**said.metadata, WITH_TOPICS: True} if topics else said.metadata,
    )


_BY_PREFIX = "SELECT chat_id FROM messages WHERE user_id = ? AND id >= ? || '.' AND id < ? || '/' LIMIT 1"
_BY_IDS = "SELECT chat_id FROM messages WHERE user_id = ? AND id IN (SELECT value FROM json_each(?)) LIMIT 1"


def _found(connection: apsw.Connection, user: UserId, prefix: str, said: Sequence[Said]) -> ChatId | None:
    """The chat that an earlier import, or another Klaw's chat itself, has put these messages into."""
    if prefix:
        found = connection.execute(_BY_PREFIX, (user, prefix, prefix)).get
    else:
        found = connection.execute(_BY_IDS, (user, json.dumps([each.id for each in said]))).get
    return None if found is None else ChatId(found)


def _free(connection: apsw.Connection, user: UserId, name: str) -> ChatId:
    number = 1
    while messages.session(connection, chat := chat_id(user, numbered(name, number))) is not None:
        number += 1
    return chat


def missing(connection: apsw.Connection, user: UserId, ids: Sequence[str]) -> list[str]:
    """Ids of messages of an export that an import would add."""
    undone: dict[str, bool] = {}
    return [each for each in ids if messages.find(connection, user, _id(connection, user, each, undone)) is None]


def _id(connection: apsw.Connection, user: UserId, given: str, undone: dict[str, bool]) -> str:
    """The id that a message gets. What was forgotten stays forgotten; but what an import brought that was undone as a
    whole may come again, and the id that it had is taken."""
    for number in range(2, MOST_AGAIN + 2):
        own = given if number == 2 else f"{given}.{number - 1}"
        known = messages.find(connection, user, own)
        if known is None or FORGOTTEN not in known.metadata or not known.channel.startswith(ORIGIN):
            break
        if known.channel not in undone:
            undone[known.channel] = not connection.execute(f"SELECT 1 {_LIVE} LIMIT 1", (known.user, known.channel)).get
        if not undone[known.channel]:
            break
    return own


MOST_DIRTY = 8
"""Logs and folders that wait for a checkpoint: an import writes to a log for each day of each chat, and everybody waits
while hundreds of them are made durable at once."""


def sync(data_dir: Path, logs: Iterable[str]) -> dict[str, int]:
    """Make logs and their folders durable while others use the writer, so that it has little left to do. Returns the
    bytes of the logs that are durable. Blocks. Raises OSError."""
    sizes = {}
    for log in logs:
        with suppress(FileNotFoundError):
            sizes[log] = (data_dir / log).stat().st_size
            atomic_file.sync(data_dir / log)
            atomic_file.sync((data_dir / log).parent)
    atomic_file.sync(data_dir / messages.CONVERSATIONS)
    return sizes


def settle(stopped: Stopped, durable: Mapping[str, int]) -> None:
    """Have a checkpoint when ``MOST_DIRTY`` wait for it; ``durable``: see ``sync``."""
    stopped.journal.note_durable(durable)
    if stopped.journal.dirty >= MOST_DIRTY:
        checkpoint(stopped.connection, stopped.journal)


# -- looking -----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Import:
    """What an import brought, as far as it is not forgotten."""

    id: ImportId
    chats: int
    messages: int
    first_at: str
    last_at: str


_LISTED = f"""
SELECT substr(channel, {len(ORIGIN) + 1}), count(DISTINCT chat_id), count(*), min(created_at), max(created_at)
FROM messages INDEXED BY messages_imported WHERE user_id = ? AND {_FROM_IMPORT} GROUP BY channel ORDER BY channel
"""  # noqa: S608 - constants


def listed(connection: apsw.Connection, user: UserId) -> list[Import]:
    """A user's imports; reads all of their messages."""
    return [
        Import(id=ImportId(origin), chats=chats_, messages=count, first_at=first, last_at=last)
        for origin, chats_, count, first, last in connection.execute(_LISTED, (user,))
    ]


def count(connection: apsw.Connection, user: UserId, origin: ImportId) -> int:
    """How many messages an import brought."""
    return int(connection.execute(f"SELECT count(*) {_LIVE}", (user, f"{ORIGIN}{origin}")).get)


def rowids(connection: apsw.Connection, user: UserId, origin: ImportId) -> list[int]:
    """Row ids of all messages that an import brought, ascending."""
    rows = connection.execute(f"SELECT rowid {_LIVE} ORDER BY rowid", (user, f"{ORIGIN}{origin}"))
    return [rowid for (rowid,) in rows]


_WHOLE = f"""
SELECT chat_id, last_seq FROM sessions s
WHERE chat_id IN (SELECT DISTINCT chat_id {_LIVE}) AND NOT EXISTS (
    SELECT 1 FROM messages m WHERE m.chat_id = s.chat_id AND m.role <> 'system' AND m.channel <> ?2)
ORDER BY chat_id
"""  # noqa: S608 - constants


def whole_chats(connection: apsw.Connection, user: UserId, origin: ImportId) -> list[tuple[ChatId, int]]:
    """The chats in which nothing else is, each with its last ``seq``."""
    return [(ChatId(chat), seq) for chat, seq in connection.execute(_WHOLE, (user, f"{ORIGIN}{origin}"))]
