"""What a client tells its consumer. Frames of the server that need no bookkeeping are passed on as they are; ``Waiter``
tells which of them is the answer to a message."""

from typing import TypeAlias

import attrs

from klaw.wire.frames import (
    Approval,
    ApprovalEnded,
    CaughtUp,
    ChatMessage,
    Delta,
    Error,
    Notice,
    Status,
    Stopped,
    Tool,
    Welcome,
)


@attrs.frozen(kw_only=True)
class Connected:
    """The server welcomed the client; missed messages follow."""

    welcome: Welcome
    again: bool
    """It is not the first time."""


@attrs.frozen(kw_only=True)
class Disconnected:
    """The connection is gone; the client tries to get it back."""

    code: str


@attrs.frozen(kw_only=True)
class Loss:
    """Why a connection ended."""

    code: str
    text: str
    fatal: bool = False
    """Another attempt cannot help."""


Event: TypeAlias = (
    ChatMessage
    | Connected
    | Disconnected
    | CaughtUp
    | Delta
    | Tool
    | Approval
    | ApprovalEnded
    | Status
    | Stopped
    | Error
    | Notice
)


@attrs.frozen
class Failed:
    """There will be no answer."""

    code: str
    text: str


class Waiter:
    """Watches the events of one chat for what becomes of one message. Pure.

    A turn answers what was there when it began; another one may be running when the message arrives, and other clients
    may talk in the same chat. So the answer is the first one, after the message, of a turn that was not running before
    it.

    Args:
        chat: its chat.
        message_id: its id.
        answered_later: it is a command whose reply may be followed by an answer (``/retry``).
    """

    def __init__(self, chat: str, message_id: str, *, answered_later: bool = False) -> None:
        self._chat = chat
        self._id = message_id
        self._answered_later = answered_later
        self._stored = False
        self._reply: ChatMessage | None = None
        self._older: set[str] = set()
        self.in_doubt = False
        """Perhaps there will be no answer: the chat does nothing. If that stays so for a while, see ``settle``."""

    def see(self, event: Event) -> ChatMessage | Failed | None:
        """Take the next event; returns the answer (or a command's reply) once it is there."""
        if getattr(event, "chat", None) != self._chat:
            return None
        match event:
            case ChatMessage():
                return self._see_entry(event)
            case Error(turn=str(turn)) if self._concerns(turn):
                return Failed(event.code, event.message)
            case Status(ended="stopped", turn=str(turn)) if self._concerns(turn):
                return Failed("stopped", "the answer was stopped")
            case Status(ended=None, state="idle" | "failed"):
                # Told after a reconnect. A server that has just started may yet take up what is unanswered.
                self.in_doubt = self._stored
            case Status(turn=str(turn)) | Delta(turn=turn) | Tool(turn=turn):
                self._see_turn(turn)
            case _:
                pass
        return None

    def settle(self) -> ChatMessage | Failed:
        """What it comes to when the doubt has lasted long enough."""
        return self._reply or Failed("no_answer", "the server made no answer; /retry tries again")

    def _see_turn(self, turn: str) -> None:
        if not self._stored:
            self._older.add(turn)
        elif turn not in self._older:
            self.in_doubt = False

    def _see_entry(self, entry: ChatMessage) -> ChatMessage | None:
        if entry.id == self._id:
            self._stored = True
            return None
        if not self._stored:
            return None
        if entry.role == "system" and entry.kind == "command":
            self._reply = entry
            self.in_doubt = self._answered_later
            return None if self._answered_later else entry
        return entry if entry.is_answer and entry.turn is not None and self._concerns(entry.turn) else None

    def _concerns(self, turn: str) -> bool:
        return self._stored and turn not in self._older
