"""Conversations of messengers in which users talk with Klaw, and how far each account of a messenger was read."""

import hashlib
from collections.abc import Iterable
from typing import Annotated

import apsw
import attrs

from klaw.convert import Wire
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.notes import Quotes
from klaw.store.changes import Kind
from klaw.store.engine.tables import table
from klaw.store.engine.transaction import Transaction


@attrs.frozen(kw_only=True)
class LinkedConversation:
    """A conversation of a messenger, the user who talks there, and how far it was told what the chat says."""

    user: Annotated[UserId, Wire("user_id")]
    id: str
    """Made of the account and the conversation."""
    account: str
    """Its name in ``channels.accounts``."""
    conversation: Annotated[str, Quotes(stays=True)]
    """The messenger's id of it."""
    sender: Annotated[str, Quotes(stays=True)]
    """The messenger's id of the person; empty for a group."""
    title: Annotated[str, Quotes()]
    """How the messenger calls the person, or the group."""
    language: str
    """``ru`` or ``en``: in which Klaw speaks of its own accord."""
    chat: Annotated[str, Quotes(stays=True)]
    """The name of the user's chat."""
    delivered: int
    """The last ``seq`` of the chat that was delivered, or need not be."""
    parts: int
    """So many messages of what comes next are delivered."""
    draft: str
    """The messenger's id of the message that shows an answer while it grows; empty: there is none."""
    created_at: str

    @property
    def is_group(self) -> bool:
        return not self.sender


def link_id(account: str, conversation: str) -> str:
    return hashlib.sha256(f"{account} {conversation}".encode()).hexdigest()[:12]


LINK: Kind[LinkedConversation] = Kind(
    what="link",
    plural="linked conversations",
    cls=LinkedConversation,
    table="channel_links",
    counted="tasks",
    on_purpose=True,
    ops={"put": LinkedConversation, "remove": None},
    beside=("user_id", "id"),
    tables=(
        table(
            "linked conversations",
            "channel_links",
            "id",
            "id, user_id, account, conversation, sender, title, language, chat, delivered, parts, draft, created_at",
            first="",
            small=True,
        ),
    ),
)


def links(connection: apsw.Connection, account: str | None = None) -> list[LinkedConversation]:
    """The conversations of an account, or of all, the oldest first."""
    return LINK.rows.all(connection, "WHERE ?1 IS NULL OR account = ?1 ORDER BY rowid", account)


def put_link(tx: Transaction, link: LinkedConversation, at: str) -> None:
    """Store a conversation. If another user had it, that ends."""
    for each in links(tx.connection, link.account):
        if each.id == link.id and each.user != link.user:
            tx.journal(LINK.removed(each.user, each.id, at))
    tx.journal(LINK.put(link.user, link.id, link, at))


def remove_links(tx: Transaction, gone: Iterable[LinkedConversation], at: str) -> None:
    for each in gone:
        if LINK.is_there(tx.connection, each.user, each.id):
            tx.journal(LINK.removed(each.user, each.id, at))


@attrs.frozen(kw_only=True)
class ReadPosition:
    """How far an account of a messenger was read."""

    user: Annotated[UserId, Wire("user_id")] = LOCAL_USER
    account: str
    position: str


POSITION: Kind[ReadPosition] = Kind(
    what="position",
    plural="read positions",
    cls=ReadPosition,
    table="channel_positions",
    id="account",
    counted="tasks",
    ops={"put": ReadPosition},
    beside=("user_id", "account"),
    tables=(
        table("read positions", "channel_positions", "account", "user_id, account, position", first="", small=True),
    ),
)


def position(connection: apsw.Connection, account: str) -> str | None:
    found = POSITION.get(connection, LOCAL_USER, account)
    return found.position if found is not None and found.position else None


def set_position(tx: Transaction, account: str, to: str, at: str) -> None:
    """Store from where an account is read on; empty: from now on."""
    tx.journal(POSITION.put(LOCAL_USER, account, ReadPosition(account=account, position=to), at))
