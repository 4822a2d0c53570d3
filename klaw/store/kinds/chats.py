"""Chats as their user sees them; ``kinds.messages`` has their other rows."""

import itertools
import json
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import apsw
import attrs

from klaw.convert import Form, Wire
from klaw.domain.forget import MARK
from klaw.domain.knowledge import BaseId
from klaw.domain.message import MAX_FIRST_TITLE, MAX_PREVIEW, MAX_TITLE, ChatMark, Message
from klaw.domain.names import NEW_CHAT, ChatId, UserId, chat_id, chat_name, name_of
from klaw.domain.person import Finder
from klaw.domain.text import in_brief
from klaw.errors import InvalidValue, NoSuchChat, StorageError
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine import meta
from klaw.store.engine.tables import ContentTable
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages
from klaw.store.kinds.knowledge import bases as kb
from klaw.store.kinds.knowledge.bases import Membership


@attrs.frozen(kw_only=True)
class StoredChat:
    chat: Annotated[ChatId, Wire("chat_id")]
    user: Annotated[UserId, Wire("user_id")]
    name: str
    title: str
    """Of a chat whose name Klaw made, until it has one, how its first message begins; else empty until then."""
    last_seq: int
    segment: int
    """The current one: how many ``/new`` there were."""
    archived: bool
    created_at: str
    updated_at: str
    bases: tuple[BaseId, ...] = ()
    """Knowledge bases that it is bound to, also those that are gone (``bound``)."""
    named: bool = False
    """Whether its user, or a model, gave it the title."""
    pinned: bool = False
    temporary: bool = False
    preview: str = ""
    """How its last message begins."""


CHATS = rows.Rows(StoredChat, "chat_list")
_MARKS = rows.Rows(ChatMark, "chats")


def get(connection: apsw.Connection, user: UserId, chat: ChatId) -> StoredChat | None:
    """A user's chat; None also for one that was deleted and in which nothing was said since."""
    found = CHATS.one(connection, "WHERE user_id = ? AND chat_id = ?", user, chat)
    return _in_brief(found) if found is not None else None


def _in_brief(chat: StoredChat) -> StoredChat:
    title = chat.title if chat.named else in_brief(chat.title, MAX_FIRST_TITLE)
    return attrs.evolve(chat, title=title, preview=in_brief(chat.preview, MAX_PREVIEW))


def listed(
    connection: apsw.Connection, user: UserId, limit: int, offset: int = 0, *, archived: bool = False
) -> list[StoredChat]:
    """A user's chats, pinned ones before the others, the last used first: those that are archived, or those that are
    not."""
    order = "ORDER BY pinned DESC, updated_at DESC, chat_key DESC"
    # Only of those that are listed the messages are read.
    page = f"SELECT chat_id FROM chat_list WHERE user_id = ?1 AND archived = ?2 {order} LIMIT ?3 OFFSET ?4"  # noqa: S608
    query = f"WHERE user_id = ?1 AND chat_id IN ({page}) {order}"
    return [_in_brief(each) for each in CHATS.all(connection, query, user, archived, limit, offset)]


def last_used(connection: apsw.Connection, users: Sequence[UserId]) -> tuple[UserId, ChatId] | None:
    """Who of some users said something last, and in which chat. Archived and temporary chats and what was imported do
    not count."""
    query = """
    SELECT m.user_id, m.chat_id FROM messages AS m CROSS JOIN chat_list AS c ON c.chat_id = m.chat_id
    WHERE m.user_id IN (SELECT value FROM json_each(?)) AND m.role = 'user' AND m.channel NOT GLOB 'import:*'
        AND NOT c.archived AND NOT c.temporary
    ORDER BY m.rowid DESC LIMIT 1
    """
    found = connection.execute(query, (json.dumps(list(users)),)).fetchone()
    return (UserId(found[0]), ChatId(found[1])) if found is not None else None


def to_tell(connection: apsw.Connection, user: UserId, chat: ChatId) -> ChatId:
    """Where a user sees what is meant for a chat: there, or, if it is gone or archived, in the one used last."""
    found = get(connection, user, chat)
    used = last_used(connection, [user]) if found is None or found.archived else None
    return chat if used is None else used[1]


def count(connection: apsw.Connection, user: UserId, *, archived: bool | None = None) -> int:
    """How many chats a user has; None: archived ones, too."""
    query = "SELECT count(*) FROM chat_list WHERE user_id = ?1 AND archived = coalesce(?2, archived)"
    return int(connection.execute(query, (user, archived)).get)


def count_said(connection: apsw.Connection, user: UserId, chats: Sequence[ChatId]) -> dict[ChatId, int]:
    """How many messages were said in each of a user's chats; reads all of their rows."""
    query = """
    SELECT chat_id, count(*) FROM messages WHERE +user_id = ?1 AND chat_id IN (SELECT value FROM json_each(?2))
        AND role IN ('user', 'assistant') AND type IN ('text', 'scheduled')
    GROUP BY chat_id
    """
    found = dict.fromkeys(chats, 0)
    return found | {ChatId(chat): said for chat, said in connection.execute(query, (user, json.dumps(chats)))}


# -- temporary chats, and chats without a title ----------------------------------------------------------------------

TEMPORARY = "(SELECT chat_id FROM chats WHERE temporary)"
"""SQL: the temporary chats of all users."""


def is_temporary(connection: apsw.Connection, chat: ChatId) -> bool:
    return bool(connection.execute("SELECT temporary FROM chats WHERE chat_id = ?", (chat,)).get)


def temporary(connection: apsw.Connection) -> list[tuple[UserId, ChatId, int, str]]:
    """The temporary chats of all users in which something is to be forgotten, the longest unused first: each with its
    last seq, and when that was."""
    query = f"""
    SELECT s.user_id, s.chat_id, s.last_seq, s.updated_at FROM {TEMPORARY} AS t
    JOIN chats AS c ON c.chat_id = t.chat_id JOIN sessions AS s ON s.chat_id = t.chat_id
    WHERE s.last_seq > c.deleted ORDER BY s.updated_at
    """  # noqa: S608 - a constant
    return [(UserId(user), ChatId(chat), seq, at) for user, chat, seq, at in connection.execute(query)]


_COMMANDS = f"""
SELECT rowid, user_id, created_at, type = 'command' AND content <> ''
    AND (role = 'user' OR metadata ->> '$.command' IS NOT NULL)
    AND {" AND ".join(f"json_type(metadata, '$.{choice}') IS NULL" for choice in messages.CHOICES)}
FROM messages_whole WHERE rowid > ? ORDER BY rowid LIMIT ?
"""  # noqa: S608 - constants


_LOOKED_AT = 5_000


def old_commands(connection: apsw.Connection, before: str) -> tuple[int, dict[UserId, list[int]], bool]:
    """Row ids of commands and their answers of before a time, by user, among the next messages that were not looked at;
    up to which message that is, and whether there are more. An answer by which a chat's turns go, such as that to
    ``/model``, is none."""
    last, found = int(meta.get(connection, meta.COMMANDS_TO) or 0), dict[UserId, list[int]]()
    rows: list[Any] = connection.execute(_COMMANDS, (last, _LOOKED_AT)).fetchall()
    old = list(itertools.takewhile(lambda row: row[2] < before, rows))
    for last, user, _at, goes in old:
        if goes:
            found.setdefault(UserId(user), []).append(last)
    return last, found, len(old) == _LOOKED_AT


def note_commands(tx: Transaction, last: int) -> None:
    meta.put(tx.connection, meta.COMMANDS_TO, str(last))


def untitled(connection: apsw.Connection) -> tuple[UserId, ChatId] | None:
    """The chat used last whose name Klaw made, which has an answer, and for which no model was asked for a title."""
    query = f"""
    SELECT s.user_id, s.chat_id FROM sessions AS s LEFT JOIN chats AS c ON c.chat_id = s.chat_id
    WHERE s.name GLOB '{NEW_CHAT}' AND coalesce(c.title, '') = '' AND NOT coalesce(c.titled, 0)
        AND NOT coalesce(c.temporary, 0) AND NOT coalesce(c.deleted, 0)
        AND EXISTS (
            SELECT 1 FROM messages AS m WHERE m.chat_id = s.chat_id AND m.role = 'assistant' AND m.type = 'text')
    ORDER BY s.updated_at DESC LIMIT 1
    """  # noqa: S608 - a constant
    found = connection.execute(query).fetchone()
    return (UserId(found[0]), ChatId(found[1])) if found is not None else None


# -- writing ----------------------------------------------------------------------------------------------------------


def _apply(connection: apsw.Connection, change: Change[ChatMark]) -> None:
    query = """
    INSERT INTO chats (chat_id, user_id, entry, title, archived, unrecalled, bases, pinned, temporary, titled)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (chat_id) DO UPDATE SET entry = excluded.entry, title = excluded.title, archived = excluded.archived,
        unrecalled = excluded.unrecalled, bases = excluded.bases, pinned = excluded.pinned,
        temporary = excluded.temporary, titled = excluded.titled
    """
    assert change.value is not None
    chat, mark = chat_id(change.user, change.key), change.value
    lists = json.dumps(mark.unrecalled), json.dumps(mark.bases)
    marks = mark.pinned, mark.temporary, mark.titled
    connection.execute(query, (chat, change.user, change.entry, mark.title, mark.archived, *lists, *marks))


def forget(connection: apsw.Connection, user: UserId, chat: ChatId, seq: int, entry: int) -> None:
    """Leave nothing of a user's chat but its numbers, and that it is temporary: somebody may go on in it. What was said
    up to ``seq`` is being forgotten."""
    query = """
    INSERT INTO chats (chat_id, user_id, entry, deleted) VALUES (?, ?, ?, ?)
    ON CONFLICT (chat_id) DO UPDATE SET entry = excluded.entry, title = '', archived = 0, unrecalled = '[]',
        bases = '[]', pinned = 0, titled = 0, deleted = excluded.deleted
    """
    connection.execute(query, (chat, user, entry, seq))


def forget_titles(connection: apsw.Connection, said: Sequence[Message], entry: int) -> None:
    """Remove the titles that a model made of messages that are being forgotten."""
    query = "UPDATE chats SET title = '', entry = ?1 WHERE chat_id = ?2 AND titled >= ?3 AND titled > 0 AND title <> ''"
    connection.executemany(query, [(entry, each.chat, each.seq) for each in said])


_ROWS = """
SELECT chat_id, user_id, entry, title, archived, deleted, unrecalled, bases, pinned, temporary, titled FROM chats
WHERE chat_id > :after ORDER BY chat_id LIMIT :limit
"""

CHAT: Kind[ChatMark] = Kind(
    what="chat",
    plural="titles",
    cls=ChatMark,
    table="chats",
    id="chat_id",
    key_of=name_of,
    counted="chats",
    ops={"put": ChatMark},
    key=Form(chat_name, str),
    apply=_apply,
    tables=(ContentTable(name="chats", first="", statement=_ROWS, small=True),),
)


def unrecalled(connection: apsw.Connection, chat: ChatId) -> frozenset[int]:
    """Numbers of a chat's messages that recall never brings back by itself."""
    found = connection.execute("SELECT unrecalled FROM chats WHERE chat_id = ?", (chat,)).get
    return frozenset(json.loads(found or "[]"))


def rename(tx: Transaction, user: UserId, chat: ChatId, title: str, at: str) -> StoredChat:
    """Give a user's chat a title (``domain.message.chat_title``), which may be empty. Raises NoSuchChat."""
    now, mark = _marked(tx, user, chat)
    titled = 0 if title else now.last_seq  # who takes a title away wants none from a model either
    return _put(tx, now, mark, attrs.evolve(mark, title=title, titled=titled), at)


def _put(tx: Transaction, now: StoredChat, before: ChatMark, mark: ChatMark, at: str) -> StoredChat:
    if mark != before:
        tx.journal(CHAT.put(now.user, now.name, mark, at))
    found = get(tx.connection, now.user, now.chat)
    assert found is not None
    return found


def pin(tx: Transaction, user: UserId, chat: ChatId, at: str, *, pinned: bool) -> StoredChat:
    """Have a user's chat before the others in lists, or not. Raises NoSuchChat."""
    now, mark = _marked(tx, user, chat)
    return _put(tx, now, mark, attrs.evolve(mark, pinned=pinned), at)


def take_out_of_titles(tx: Transaction, user: UserId, chats: Collection[ChatId], finder: Finder, at: str) -> None:
    """Put MARK in the place of somebody's names in the titles of a user's chats."""
    for chat in chats:
        mark = _mark(tx.connection, user, chat)
        title = finder.without(mark.title, MARK)
        if title != mark.title:
            tx.journal(CHAT.put(user, name_of(chat), attrs.evolve(mark, title=title[:MAX_TITLE]), at))


def set_title(tx: Transaction, user: UserId, chat: ChatId, title: str, seq: int, at: str, as_of: int) -> None:
    """Keep the title that a model made of the messages up to ``seq``, or that it made none (empty), unless the user
    gave one meanwhile. Raises NoSuchChat; SourceForgotten: the user has forgotten something since entry ``as_of``."""
    tx.check_nothing_forgotten(user, as_of)
    now, mark = _marked(tx, user, chat)
    if not mark.title and not mark.titled:
        _put(tx, now, mark, attrs.evolve(mark, title=title, titled=seq), at)


def begin_temporary(tx: Transaction, user: UserId, chat: ChatId, at: str) -> bool:
    """Make a user's chat a temporary one before something is said in it. Returns whether it is one."""
    mark = _mark(tx.connection, user, chat)
    if mark.temporary or get(tx.connection, user, chat) is not None:
        return mark.temporary
    tx.journal(CHAT.put(user, name_of(chat), attrs.evolve(mark, temporary=True), at))
    return True


def keep(tx: Transaction, user: UserId, chat: ChatId, at: str) -> StoredChat:
    """Make a temporary chat one like the others. Raises NoSuchChat."""
    now, mark = _marked(tx, user, chat)
    return _put(tx, now, mark, attrs.evolve(mark, temporary=False), at)


def archive(tx: Transaction, user: UserId, chat: ChatId, at: str, *, archived: bool) -> StoredChat:
    """Take a user's chat out of the lists, or bring it back. Raises NoSuchChat."""
    now, mark = _marked(tx, user, chat)
    if archived == now.archived:
        return now
    return _put(tx, now, mark, attrs.evolve(mark, archived=now.last_seq if archived else 0), at)


def recall(tx: Transaction, user: UserId, chat: ChatId, seqs: Collection[int], at: str, *, recalled: bool) -> None:
    """Let recall bring messages of a user's chat back, or never. Raises NoSuchChat; InvalidValue: too many of them."""
    now, mark = _marked(tx, user, chat)
    before = frozenset(mark.unrecalled)
    after = before.difference(seqs) if recalled else before.union(seqs)
    mark = attrs.evolve(mark, unrecalled=tuple(sorted(after)))
    CHAT.check(mark)
    if after != before:
        tx.journal(CHAT.put(user, now.name, mark, at))


def bind(tx: Transaction, user: UserId, chat: ChatId, bases: Sequence[BaseId], at: str) -> tuple[BaseId, ...]:
    """Let a user's chat, which may have no messages yet, be answered from these knowledge bases only. Raises
    NoSuchBase: the user is not a member of one of them; StorageError: too many of them."""
    mark = _mark(tx.connection, user, chat)
    wanted = tuple(dict.fromkeys(bases))
    try:
        CHAT.check(attrs.evolve(mark, bases=wanted))
    except InvalidValue as error:
        raise StorageError(str(error)) from None
    for base in wanted:
        kb.get(tx.connection, user, base)
    if wanted != mark.bases:
        tx.journal(CHAT.put(user, name_of(chat), attrs.evolve(mark, bases=wanted), at))
    return wanted


@attrs.frozen(kw_only=True)
class BoundBases:
    """What a chat is answered from."""

    bases: tuple[Membership, ...]
    gone: tuple[BaseId, ...] = ()
    """Bases that were deleted or are not shared with its user any more."""


def bound(connection: apsw.Connection, user: UserId, chat: ChatId) -> BoundBases | None:
    """The bases that a user's chat is bound to, as far as the user is a member now; None: it is bound to none."""
    wanted = _mark(connection, user, chat).bases
    if not wanted:
        return None
    mine = {each.base.id: each for base in wanted for each in kb.of_user(connection, user, named=base)}
    return BoundBases(
        bases=tuple(mine[base] for base in wanted if base in mine),
        gone=tuple(base for base in wanted if base not in mine),
    )


def _mark(connection: apsw.Connection, user: UserId, chat: ChatId) -> ChatMark:
    return _MARKS.one(connection, "WHERE user_id = ? AND chat_id = ?", user, chat) or ChatMark()


def _marked(tx: Transaction, user: UserId, chat: ChatId) -> tuple[StoredChat, ChatMark]:
    now = get(tx.connection, user, chat)
    if now is None:
        raise NoSuchChat(name_of(chat))
    return now, _mark(tx.connection, user, chat)
