"""What came from other programs. Which import brought a message stands in its channel, and of a fact or a person in
``imported``, so there is no table of imports: an import is there as long as something of it is."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import attrs

from klaw import atomic_file
from klaw.config.schema import AttachmentsConfig
from klaw.convert import REQUESTS
from klaw.domain import tokens
from klaw.domain.fact import Fact, FactId
from klaw.domain.forget import FORGOTTEN
from klaw.domain.imported import ORIGIN, WITH_TOPICS, ImportedMessage, ImportId, numbered
from klaw.domain.knowledge import Base, Source
from klaw.domain.message import Message, MessageKind, NewMessage, instant
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.domain.person import Person, PersonId, adds_nothing
from klaw.errors import BaseExists, IdConflict, InvalidValue
from klaw.store.changes import Kind
from klaw.store.engine.transaction import StoppedStore, Transaction, checkpoint
from klaw.store.kinds import attachments, chats, facts, messages, people
from klaw.store.kinds.knowledge import bases, sources

MOST_AGAIN = 9
"""So often what one and the same export brings can be undone and imported again."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_FROM_IMPORT = f"channel GLOB '{ORIGIN}*' AND role <> 'system'"
_REPLACED = """
FROM messages_whole WHERE user_id = ?1 AND channel = ?2 AND branch IS NOT NULL AND metadata ->> '$.forgotten' IS NULL
"""
_LIVE = f"FROM messages INDEXED BY messages_imported WHERE user_id = ?1 AND channel = ?2 AND {_FROM_IMPORT}"


@attrs.frozen(kw_only=True)
class PutCounts:
    """What became of a part of a chat; beginnings of segments are not counted."""

    chat: ChatId
    added: int
    known: int
    """Were here already, or are forgotten."""
    elsewhere: int
    """Messages that are here in another chat."""
    logs: frozenset[str]


def texts_of(connection: apsw.Connection, user: UserId, channel: str) -> tuple[list[Message], Iterator[str]]:
    """The messages with files of an import, by its channel, and the texts of all its messages, too many to hold."""
    found = f"{_LIVE} AND instr(metadata, '\"files\":') UNION SELECT rowid {_REPLACED}"
    rows = connection.execute(f"SELECT rowid {found}", (user, channel))
    with_files = messages.whole(connection, [rowid for (rowid,) in rows])
    contents = connection.execute(f"SELECT content {_LIVE} UNION ALL SELECT content {_REPLACED}", (user, channel))
    return with_files, (str(text) for (text,) in contents)


def put(
    tx: Transaction,
    user: UserId,
    origin: ImportId,
    said: Sequence[ImportedMessage],
    *,
    prefix: str,
    name: str,
    title: str,
    topics: bool,
    into: ChatId | None,
    at: str,
    limits: AttachmentsConfig,
) -> PutCounts:
    """Store messages of one chat of an export that are not here yet.

    Args:
        said: in their order.
        prefix: of the ids of all messages of the chat; empty: ids of another Klaw.
        name: of the chat, if it is not here yet; where that is taken a number is added.
        title: of the chat, if it is not here yet.
        topics: whether topics may be made of it.
        into: the chat that an earlier part of the same was put into.

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
        found[became] += each.type is not MessageKind.SESSION_BREAK
    if new and title and found["added"]:
        chats.rename(tx, user, chat, title, at)
    logs = frozenset(each.path for each in tx.entries)
    return PutCounts(chat=chat, added=found["added"], known=found["known"], elsewhere=found["elsewhere"], logs=logs)


def _message(user: UserId, chat: ChatId, origin: ImportId, said: ImportedMessage, *, topics: bool) -> NewMessage:
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


def _found(connection: apsw.Connection, user: UserId, prefix: str, said: Sequence[ImportedMessage]) -> ChatId | None:
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


def checked(kind: Kind[Any], fields: Mapping[str, Any]) -> Any:
    """One thing of an export. Raises BadValue, or ValueError, for one that breaks a rule."""
    value = REQUESTS.read(fields, kind.cls)
    for name in attrs.fields_dict(kind.cls):
        if name.endswith("_at"):
            instant(getattr(value, name))
    kind.check(value)
    if not _ID.fullmatch(getattr(value, kind.id)):
        raise InvalidValue("id: has 1 to 64 of A-Z, a-z, 0-9, '_', '.', ':' and '-'")
    return value


def remember(tx: Transaction, user: UserId, origin: ImportId, kind: Kind[Any], *, given: Sequence[Any], at: str) -> int:
    """Store things of a kind that another Klaw has, with their ids and times. Returns how many are new to this one.

    What was ever here under its id is left as it is now: edited, replaced, removed or forgotten, that was decided
    later than the export was made. A fact or a person known here by another id becomes history at once, as if that one
    had taken its place: so it stays known whatever happens to that one. Turns and topics are not moved, so nothing
    leads there.
    """
    undone: dict[str, bool] = {}
    return sum([_remembered(tx, user, origin, kind, each, at, undone) for each in given])


def _remembered(
    tx: Transaction, user: UserId, origin: ImportId, kind: Kind[Any], given: Any, at: str, undone: dict[str, bool]
) -> bool:
    connection, key = tx.connection, getattr(given, kind.id)
    if kind.is_there(connection, user, key) or (kind.past and kind.history(connection, user, key)):
        return False
    assert callable(kind.moves)
    moved = attrs.evolve(kind.moves(given), user=user)
    if isinstance(moved, Person):
        known = [each for each in people.by_names(connection, user, moved.names) if each.imported is None]
        one = next((each.id for each in known if adds_nothing(moved, each)), None)
        people.change(tx, user, at, put=[attrs.evolve(moved, imported=origin, merged_into=one)])
        return one is None
    if isinstance(moved, Fact):
        same = facts.same_text(connection, user, moved.text, moved.id)
        placed = _placed(connection, user, moved, undone)
        facts.put(tx, attrs.evolve(placed, imported=origin, superseded_by=same.id if same is not None else None), "new")
        return same is None
    if isinstance(moved, Base):
        if not bases.is_free(connection, moved.id):
            return False
        try:
            bases.put(tx, moved)
        except BaseExists:
            return False
        return True
    tx.journal(kind.put(user, key, moved, at))
    return True


def put_document(tx: Transaction, base: Base, document: Source, most: int) -> tuple[Base, Source]:
    """Store a document of a project in its base, which is made if it is not there: where its name is taken, a number is
    added. Returns both as they are now; a document that was there is another source. Raises as ``sources.add``."""
    number = 1
    while bases.is_free(tx.connection, base.id):
        try:
            bases.put(tx, attrs.evolve(base, name=numbered(base.name, number)))
        except BaseExists:
            number += 1
    return bases.get(tx.connection, base.user, base.id).base, sources.add(tx, base.user, document, most)


def _placed(connection: apsw.Connection, user: UserId, fact: Fact, undone: dict[str, bool]) -> Fact:
    """A fact with its message and its chat as they are here, if they are."""
    message = messages.find(connection, user, _id(connection, user, fact.message, undone)) if fact.message else None
    if message is not None and FORGOTTEN not in message.metadata:
        return attrs.evolve(fact, message=message.id, chat=message.chat)
    chat = chat_id(user, fact.chat.partition(":")[2]) if fact.chat else None
    is_here = chat is not None and messages.session(connection, chat) is not None
    return attrs.evolve(fact, message=None, chat=chat if is_here else None)


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


def settle(stopped: StoppedStore, durable: Mapping[str, int]) -> None:
    """Have a checkpoint when ``MOST_DIRTY`` wait for it; ``durable``: see ``sync``."""
    stopped.journal.note_durable(durable)
    if stopped.journal.dirty >= MOST_DIRTY:
        checkpoint(stopped.connection, stopped.journal)


# -- looking -----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ImportSummary:
    """What an import brought, as far as it is not forgotten."""

    id: ImportId
    chats: int = 0
    messages: int = 0
    first_at: str = ""
    last_at: str = ""
    facts: int = 0
    people: int = 0


def listed(connection: apsw.Connection, user: UserId) -> list[ImportSummary]:
    """A user's imports, the first first; reads all of their messages."""
    of_messages = f"""
    SELECT substr(channel, {len(ORIGIN) + 1}), count(DISTINCT chat_id), count(*), min(created_at), max(created_at)
    FROM messages INDEXED BY messages_imported WHERE user_id = ? AND {_FROM_IMPORT} GROUP BY channel
    """  # noqa: S608 - constants
    remembered = """
    SELECT value ->> '$.imported', count(DISTINCT {what}_id) FROM {what}_changes
    WHERE user_id = ? AND value ->> '$.imported' IS NOT NULL GROUP BY 1
    """
    found = {
        origin: ImportSummary(id=origin, chats=chats_, messages=count, first_at=first, last_at=last)
        for origin, chats_, count, first, last in connection.execute(of_messages, (user,))
    }
    for what, field in (("fact", "facts"), ("person", "people")):
        for origin, count in connection.execute(remembered.format(what=what), (user,)):
            found[origin] = attrs.evolve(found.get(origin, ImportSummary(id=origin)), **{field: count})
    return [found[origin] for origin in sorted(found)]


def count(connection: apsw.Connection, user: UserId, origin: ImportId) -> int:
    return int(connection.execute(f"SELECT count(*) {_LIVE}", (user, f"{ORIGIN}{origin}")).get)


@attrs.frozen(kw_only=True)
class ImportContents:
    """All that an import brought, also facts and people that were changed or removed since."""

    rowids: tuple[int, ...]
    facts: tuple[FactId, ...]
    people: tuple[PersonId, ...]


def brought(connection: apsw.Connection, user: UserId, origin: ImportId) -> ImportContents:
    query = """
    SELECT DISTINCT {what}_id FROM {what}_changes WHERE user_id = ? AND value ->> '$.imported' = ? ORDER BY 1
    """
    rows = connection.execute(f"SELECT rowid {_LIVE} UNION SELECT rowid {_REPLACED}", (user, f"{ORIGIN}{origin}"))
    ids = {
        what: [each for (each,) in connection.execute(query.format(what=what), (user, origin))]
        for what in ("fact", "person")
    }
    return ImportContents(
        rowids=tuple(rowid for (rowid,) in rows), facts=tuple(ids["fact"]), people=tuple(ids["person"])
    )


def whole_chats(connection: apsw.Connection, user: UserId, origin: ImportId) -> list[tuple[ChatId, int]]:
    """The chats in which nothing else is, each with its last ``seq``."""
    query = f"""
    SELECT chat_id, last_seq FROM sessions s
    WHERE chat_id IN (SELECT DISTINCT chat_id {_LIVE}) AND NOT EXISTS (
        SELECT 1 FROM messages_whole m WHERE m.chat_id = s.chat_id AND m.role <> 'system' AND m.channel <> ?2)
    ORDER BY chat_id
    """  # noqa: S608 - constants
    return [(ChatId(chat), seq) for chat, seq in connection.execute(query, (user, f"{ORIGIN}{origin}"))]
