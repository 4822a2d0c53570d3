"""What the gateway may ask of chats: the interface that the directory implements."""

from typing import Any, Protocol

from klaw.actor.mailbox import Reply
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord
from klaw.errors import KlawError
from klaw.store.kinds.messages import Appended, Session


class TooManyChats(KlawError):
    """The user has ``chats.maxPerUser`` chats already."""


class ChatBusy(KlawError):
    """The chat's mailbox is full: the client should send again a little later."""


class Chats(Protocol):
    """Chats of all users. Every method takes the user, and sees that user's chats only."""

    def runs(self, chat: ChatId) -> bool:
        """Whether ``submit`` may be called; else ``start`` it."""
        ...

    async def start(self, user: UserId, name: str) -> None:
        """Have a chat run; a new name makes a new chat, which is stored with its first message.

        Raises:
            InvalidName: the chat's name breaks its rule.
            TooManyChats, ActorStopped
        """
        ...

    def submit(self, chat: ChatId, message_id: str, text: str, reply: Reply[Appended]) -> None:
        """Hand a user's message, or a slash command, to a chat that runs; without waiting.

        The reply comes when it is durable, or with IdConflict, StorageFull or ActorStopped. ``MessageStored`` was
        emitted before, unless ``repeated``.

        Raises:
            ChatBusy, ActorStopped: nothing was stored.
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
