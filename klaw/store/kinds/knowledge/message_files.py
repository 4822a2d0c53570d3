"""Files of messages that are read as documents: those of a user are the documents of one source, in a base of its own.

A document's id is made of the file's SHA-256, so a file is read once, whatever chats have it. Who searches says which
chat or chats, and only the files that their messages show are looked into.
"""

import hashlib
import json
from collections.abc import Collection, Sequence

import apsw
import attrs

from klaw.convert import JOURNAL
from klaw.domain.attachment import FILES, Attachment, files_of
from klaw.domain.knowledge import (
    Base,
    BaseId,
    Document,
    DocumentId,
    DocumentState,
    Source,
    SourceId,
    SourceKind,
    what_was_read,
)
from klaw.domain.knowledge import document_id as id_of
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.search import FoundPassage
from klaw.store import rows
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages
from klaw.store.kinds.chats import TEMPORARY
from klaw.store.kinds.knowledge import bases, passages
from klaw.store.kinds.knowledge.bases import BASE
from klaw.store.kinds.knowledge.document_steps import DOCUMENTS, HAS_SOURCE
from klaw.store.kinds.knowledge.passages import PassageScope
from klaw.store.kinds.knowledge.sources import SOURCE
from klaw.store.kinds.pending import MAX_PENDING

_NAME = "Files of messages"
_MESSAGES = "FROM messages AS m INDEXED BY messages_with_files"
_REPLACED = "FROM replaced_messages AS m JOIN messages AS now ON now.rowid = m.rowid"
_HAVE = "instr(m.metadata, '\"files\":')"
_EACH = "json_each(m.metadata, '$.files') AS f"
_WAITING = "SELECT count(*) FROM kb_documents WHERE source_id = ? AND state = 'waiting'"
_INSERT = rows.insert("kb_documents", Document).replace("INSERT", "INSERT OR IGNORE", 1)


@attrs.frozen(kw_only=True)
class FileOfChat:
    """A file that a message of a chat shows. ``document``: None if it is not read as one."""

    seq: int
    file: Attachment
    document: Document | None


def base_of(user: UserId) -> BaseId:
    """The id of the base of a user's files."""
    return BaseId(_digest(user)[:20])


def document_id(user: UserId, sha256: str) -> DocumentId:
    return id_of(_source_of(user), sha256)


def _source_of(user: UserId) -> SourceId:
    return SourceId(_digest(user)[20:40])


def _digest(user: UserId) -> str:
    return hashlib.sha256(f"files of messages\0{user}".encode()).hexdigest()


def take_up(tx: Transaction, user: UserId, files: Sequence[Attachment], at: str) -> None:
    """Files of a user are to be read, those that are documents and new."""
    found = [each for each in files if each.is_document]
    if not found:
        return
    base, source = base_of(user), _source_of(user)
    if not tx.connection.execute(HAS_SOURCE, (source, base)).get:
        if bases.is_free(tx.connection, base):
            made = Base(id=base, user=user, name=_NAME, created_at=at, updated_at=at, of_messages=True)
            tx.journal(BASE.put(user, base, made, at))
        kind = SourceKind.MESSAGES
        files_source = Source(
            id=source, user=user, base=base, kind=kind, name=_NAME, added_by=user, created_at=at, updated_at=at
        )
        tx.journal(SOURCE.put(user, source, files_source, at))
    for each in found:
        document = Document(
            id=id_of(source, each.sha256), base=base, source=source, name=each.name, size=each.bytes, sha256=each.sha256
        )
        tx.connection.execute(_INSERT, rows.values(document))


def untaken(connection: apsw.Connection) -> dict[UserId, list[Attachment]]:
    """Files of messages of all users that are documents and not taken up: those of an earlier Klaw, or of logs."""
    found: dict[UserId, dict[DocumentId, Attachment]] = {}
    for user, metadata in connection.execute(f"SELECT m.user_id, m.metadata {_MESSAGES} WHERE {_HAVE}"):
        own = {document_id(user, each.sha256): each for each in files_of(json.loads(metadata)) if each.is_document}
        found.setdefault(UserId(user), {}).update(own)
    known = {user: _there(connection, own.keys()) for user, own in found.items()}
    left = {user: [each for key, each in own.items() if key not in known[user]] for user, own in found.items()}
    return {user: files for user, files in left.items() if files}


def unsent(connection: apsw.Connection, before: str) -> list[DocumentId]:
    """Documents of files that were read before a time and of which no message is, not even a replaced one."""
    query = """
    SELECT d.id FROM kb_documents AS d JOIN kb_sources AS s ON s.id = d.source_id
    WHERE s.kind = 'messages' AND d.read_at <> '' AND d.read_at < ?
    """
    sent_files = f"SELECT m.user_id, f.value ->> '$.sha256' {_MESSAGES}, {_EACH} WHERE {_HAVE}"
    replaced = f"SELECT now.user_id, f.value ->> '$.sha256' {_REPLACED}, {_EACH} WHERE {_HAVE}"
    kept = {document_id(user, sha256) for each in (sent_files, replaced) for user, sha256 in connection.execute(each)}
    return [DocumentId(each) for (each,) in connection.execute(query, (before,)) if each not in kept]


def of_chat(connection: apsw.Connection, user: UserId, chat: ChatId, first_seq: int = 0) -> list[FileOfChat]:
    """The files that messages of a user's chat show, from a number on, in their order."""
    query = f"""
    SELECT m.seq, m.metadata {_MESSAGES} WHERE {_HAVE} AND m.chat_id = ? AND m.seq >= ? ORDER BY m.seq
    """
    found = [
        (seq, each)
        for seq, metadata in connection.execute(query, (chat, first_seq))
        for each in files_of(json.loads(metadata))
    ]
    known = _there(connection, {document_id(user, each.sha256) for _, each in found})
    return [FileOfChat(seq=seq, file=each, document=known.get(document_id(user, each.sha256))) for seq, each in found]


@attrs.frozen(kw_only=True)
class SentFile:
    """Where a file was sent last."""

    chat: ChatId
    seq: int
    created_at: str
    name: str


def sent(connection: apsw.Connection, user: UserId, chat: ChatId | None = None) -> dict[DocumentId, SentFile]:
    """The files that a user's messages show: of one chat, or of all that are not temporary."""
    which = "m.chat_id = ?2" if chat is not None else f"?2 IS NULL AND m.chat_id NOT IN {TEMPORARY}"
    query = f"""
    SELECT f.value ->> '$.sha256', m.chat_id, m.seq, m.created_at, f.value ->> '$.name' {_MESSAGES}, {_EACH}
    WHERE {_HAVE} AND m.user_id = ?1 AND {which} ORDER BY m.rowid
    """
    return {
        document_id(user, sha256): SentFile(chat=ChatId(of), seq=seq, created_at=at, name=name)
        for sha256, of, seq, at, name in connection.execute(query, (user, chat))
    }


@attrs.frozen(kw_only=True)
class SentPassage:
    """A passage of a file that was sent."""

    passage: FoundPassage
    sent: SentFile


def passages_by_rowids(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> dict[int, SentPassage]:
    """Passages of files, by their row ids; not of those that only temporary chats have."""
    where = sent(connection, user)
    found = passages.read(connection, rowids, PassageScope(user=user, bases=[base_of(user)]))
    return {
        each.rowid: SentPassage(passage=each, sent=where[each.document]) for each in found if each.document in where
    }


def waiting(connection: apsw.Connection, user: UserId, chat: ChatId) -> bool:
    """Whether files of messages that the next turn of a chat answers are still to be read."""
    if not connection.execute(_WAITING, (_source_of(user),)).get:  # as before most turns
        return False
    session = messages.session(connection, chat)
    pending = messages.pending(connection, chat, session.segment_start, MAX_PENDING) if session is not None else []
    wanted = {document_id(user, file.sha256) for each in pending for file in files_of(each.metadata)}
    return any(each.state is DocumentState.WAITING for each in _there(connection, wanted).values())


def get(connection: apsw.Connection, user: UserId, file: Attachment) -> Document | None:
    """The document of a user's file; None: it is not read as one."""
    return next(iter(_there(connection, [document_id(user, file.sha256)]).values()), None)


def with_readings(connection: apsw.Connection, user: UserId, found: Sequence[Message]) -> list[Message]:
    """Messages, the files of which say what was read of them by now."""
    shown = []
    for message in found:
        files = files_of(message.metadata)
        read = with_reading(connection, user, files)
        if read != list(files):
            metadata = {**message.metadata, FILES: [JOURNAL.write(each) for each in read]}
            message = attrs.evolve(message, metadata=metadata)  # noqa: PLW2901
        shown.append(message)
    return shown


def with_reading(connection: apsw.Connection, user: UserId, files: Sequence[Attachment]) -> list[Attachment]:
    """Files with what was read of them by now."""
    known = {
        each.sha256: what_was_read(each)
        for each in _there(connection, {document_id(user, each.sha256) for each in files if each.is_document}).values()
        if each.state is not DocumentState.WAITING
    }
    return [attrs.evolve(each, reading=known.get(each.sha256, each.reading)) for each in files]


def _there(connection: apsw.Connection, ids: Collection[DocumentId]) -> dict[DocumentId, Document]:
    if not ids:
        return {}
    among = "WHERE d.id IN (SELECT value FROM json_each(?))"
    return {each.id: each for each in DOCUMENTS.all(connection, among, json.dumps(list(ids)))}


# -- forgetting -------------------------------------------------------------------------------------------------------

MOST_TEXTS = 12
"""The longest passages of a file, whose bytes a proof looks for."""


def texts_of(connection: apsw.Connection, user: UserId, files: Sequence[Attachment]) -> list[str]:
    """What to look for when files are forgotten: their longest passages."""
    query = "SELECT text FROM kb_passages WHERE document_id = ? ORDER BY tokens DESC, rowid LIMIT ?"
    ids = [document_id(user, each.sha256) for each in files]
    return [str(text) for each in ids for (text,) in connection.execute(query, (each, MOST_TEXTS))]


def drop(tx: Transaction, documents: Sequence[DocumentId]) -> None:
    """Take documents out of their base: no search finds them, and ``sweep_documents`` removes their passages."""
    query = "UPDATE kb_documents SET source_id = '', base_id = '' WHERE id IN (SELECT value FROM json_each(?))"
    tx.connection.execute(query, (json.dumps(documents),))


def turns_given(connection: apsw.Connection, user: UserId, files: Sequence[Attachment]) -> set[str]:
    """The turns whose receipts have passages of files."""
    query = "SELECT turn_id FROM kb_used WHERE document_id IN (SELECT value FROM json_each(?))"
    ids = json.dumps([document_id(user, each.sha256) for each in files])
    return {str(turn) for (turn,) in connection.execute(query, (ids,))}
