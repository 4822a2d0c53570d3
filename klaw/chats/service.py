"""What the gateway may ask of chats: the interface that the directory implements."""

from typing import Any, Protocol

from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord
from klaw.errors import KlawError
from klaw.store.requests import Appended
from klaw.store.sql.messages import Session


class TooManyChats(KlawError):
    """The user has ``chats.maxPerUser`` chats already."""


class ChatBusy(KlawError):
    """The chat's mailbox is full: the client should send again a little later."""


class Chats(Protocol):
    """Chats of all users. Every method takes the user, and sees that user's chats only."""

    async def send(self, user: UserId, name: str, message_id: str, text: str) -> Appended:
        """Store a user's message (or carry out a slash command); a new name makes a new chat.

        Returns when it is durable. ``MessageStored`` was emitted before, unless ``repeated``.

        Raises:
            InvalidName: the chat's name breaks its rule.
            TooManyChats, ChatBusy, IdConflict, StorageFull, ActorStopped: nothing was stored.

        Cancellation: it may or may not be stored; the id makes a repetition safe.
        """
        ...

    async def stop(self, user: UserId, name: str) -> bool:
        """Cancel the chat's running turn. Returns whether one was running.

        Raises:
            InvalidName, ActorStopped
        """
        ...

    async def session(self, user: UserId, name: str) -> Session | None:
        """A chat's row; None for an unknown chat. Raises InvalidName."""
        ...

    async def sessions(self, user: UserId, limit: int) -> list[Session]:
        """The user's chats, the last used first."""
        ...

    async def after(self, chat: ChatId, seq: int, limit: int) -> list[Message]:
        """Messages of a chat after a seq, oldest first."""
        ...

    async def before(self, chat: ChatId, seq: int, limit: int) -> list[Message]:
        """The newest messages of a chat before a seq, oldest first."""
        ...

    async def receipt(self, user: UserId, name: str, turn: str | None) -> TurnRecord | None:
        """A turn with its receipt; without an id the chat's last one. Raises InvalidName."""
        ...

    def chat_status(self, chat: ChatId) -> dict[str, Any]:
        """What the chat does now: ``state`` (idle, waiting, thinking, answering, failed) and ``turn`` if one runs."""
        ...

    def health(self) -> dict[str, Any]:
        """What is degraded now, for welcome and status frames: code -> text."""
        ...
