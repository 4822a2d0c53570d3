"""Storing what a user says, with files and within the limit of a day (UTC), and which files nothing else refers to."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path

import apsw
import attrs

from klaw.actor.failure import error_class
from klaw.config.schema import AttachmentsConfig
from klaw.convert import JOURNAL
from klaw.domain import tokens
from klaw.domain.attachment import (
    DOCUMENT_TOKENS,
    FILES,
    HEAD_BYTES,
    TEXT,
    Attachment,
    NamedFile,
    beginning,
    files_of,
    sniff,
)
from klaw.domain.message import Message, NewMessage, TurnRecord
from klaw.domain.names import UserId
from klaw.domain.text import span
from klaw.errors import AttachmentRefused, StorageError, TooMuchToday
from klaw.store import attachments
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages
from klaw.store.kinds.knowledge import message_files
from klaw.store.kinds.messages import AppendedMessage

_COUNT_TODAY = """
INSERT INTO meta (key, value) VALUES ('stored_today:' || ?1, ?2 || ' ' || ?3)
ON CONFLICT (key) DO UPDATE
SET value = iif(substr(value, 1, 10) = ?2, ?2 || ' ' || (substr(value, 12) + ?3), excluded.value)
RETURNING CAST(substr(value, 12) AS INTEGER)
"""
"""The value is a day, and the bytes of lines of the user's messages that were stored on it. One statement, since each
gives the interpreter to another thread."""


def append_plain(tx: Transaction, new: NewMessage, most_bytes: int) -> tuple[AppendedMessage, ...]:
    """Store a message of a user without files. Raises IdConflict; TooMuchToday: the user would store more than
    ``most_bytes`` (0: no limit) in a day, and nothing was stored."""
    appended = messages.append_one(tx, new)
    if most_bytes and not appended.repeated:
        size = len(tx.entries[-1].line.encode())
        if tx.connection.execute(_COUNT_TODAY, (new.user, new.created_at[:10], size)).get > most_bytes:
            raise _refusal(new, most_bytes)
    return (appended,)


def _refusal(new: NewMessage, most_bytes: int) -> TooMuchToday:
    now = dt.datetime.fromisoformat(new.created_at)
    wait_s = 86_400 - now.hour * 3600 - now.minute * 60 - now.second
    text = f"the message was not stored: you may send {most_bytes:,} bytes of messages in a day here"
    again = f"send it again in {span(wait_s)}, after midnight UTC"
    return TooMuchToday(f"{text} (chats.maxUserBytesPerDay); {again}", wait_s)


def append(
    tx: Transaction,
    new: NewMessage,
    files: Sequence[NamedFile],
    limits: AttachmentsConfig,
    most_bytes: int = 0,
    turn: TurnRecord | None = None,
) -> tuple[AppendedMessage, ...]:
    """Store a message with files that were kept before: a user's, or an answer with its turn. Raises IdConflict,
    TooMuchToday; AttachmentRefused: ``unknown_file``, ``files_too_large``; StorageError: a file cannot be read."""
    made = with_files(tx, new, files, limits)
    return append_plain(tx, made, most_bytes) if turn is None else messages.append(tx, [made], turn)


def with_files(tx: Transaction, new: NewMessage, files: Sequence[NamedFile], limits: AttachmentsConfig) -> NewMessage:
    """A message that refers to files from now on, unless it is stored already; raises as ``append``."""
    if not files or messages.find(tx.connection, new.user, new.id) is not None:
        return new
    try:
        found = _looked_up(tx.data_dir, new.user, files, limits)
    except OSError as error:
        raise StorageError("a file of the message cannot be read: it was not stored") from error
    message_files.take_up(tx, new.user, found, new.created_at)
    found = message_files.with_reading(tx.connection, new.user, found)
    return attrs.evolve(new, metadata={**new.metadata, FILES: [JOURNAL.write(each) for each in found]})


def _looked_up(data_dir: Path, user: UserId, files: Sequence[NamedFile], limits: AttachmentsConfig) -> list[Attachment]:
    found, room, left = [], DOCUMENT_TOKENS, limits.max_message_bytes
    for named in files:
        with attachments.opened(data_dir, user, named.sha256) as file:
            head, size = file.head(HEAD_BYTES), file.info.st_size
        left -= size
        if left < 0:
            most = limits.max_message_bytes
            raise AttachmentRefused(
                "files_too_large",
                f"the files of a message have at most {most:,} bytes here (attachments.maxMessageBytes)",
            )
        kind = sniff(head)
        text, cut = beginning(head, size, room) if kind == TEXT else ("", False)
        room = max(0, room - tokens.estimate(text))
        found.append(Attachment(sha256=named.sha256, name=named.name, type=kind, bytes=size, text=text, cut=cut))
    attachments.mark_sent(data_dir, user, [each.sha256 for each in found])
    return found


def only_of(connection: apsw.Connection, user: UserId, own: Sequence[Message]) -> list[Attachment]:
    """The files of a user's messages that no other message of the user refers to, each once."""
    query = """
    SELECT DISTINCT f.value ->> '$.sha256' FROM messages_whole AS m, json_each(m.metadata, '$.files') AS f
    WHERE m.user_id = ?1 AND instr(m.metadata, '"files":') > 0 AND m.rowid NOT IN (SELECT value FROM json_each(?2))
    """
    found = {each.sha256: each for message in own for each in files_of(message.metadata)}
    if not found:
        return []
    others = connection.execute(query, (user, json.dumps([message.rowid for message in own])))
    kept = {row[0] for row in others}
    return [each for each in found.values() if each.sha256 not in kept]


def named(connection: apsw.Connection) -> dict[str, tuple[int, str]]:
    """Size and newest message (``main#7``) of every sent file, by its path below the data folder."""
    query = (
        "SELECT user_id, chat_id, seq, metadata FROM messages_whole WHERE instr(metadata, '\"files\":') > 0"
        " ORDER BY rowid"
    )
    return {
        attachments.path_of(UserId(user), each.sha256): (each.bytes, f"{chat}#{seq}")
        for user, chat, seq, metadata in connection.execute(query)
        for each in files_of(json.loads(metadata))
    }


def texts_of(files: Sequence[Attachment]) -> list[str]:
    """What the files say, as far as messages have it."""
    return [each.text for each in files if each.text]


def remove(tx: Transaction, user: UserId, files: Sequence[Attachment]) -> None:
    """Remove files from the disk, before the commit: a kill leaves none that nobody knows. Raises StorageError."""
    try:
        attachments.remove(tx.data_dir, user, [each.sha256 for each in files])
    except OSError as error:
        raise StorageError(f"a file cannot be removed ({error_class(error)}): nothing was forgotten") from error
