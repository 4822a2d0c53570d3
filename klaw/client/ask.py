"""One message and what comes of it: ``ask`` sends it, ``Waiter`` recognises its answer, and ``ShownAnswer`` tells what
to write of one that is streamed."""

import math
from collections.abc import Callable

import attrs
import trio

from klaw.actor.clock import new_id
from klaw.client.client import Client
from klaw.client.streams import Event
from klaw.errors import RequestRefused
from klaw.wire.frames import Delta, Error, MessageFrame, Status, Tool

ATTEMPTS = 5
"""How often a message is offered to a busy server."""
PAUSE_S = 1.0
DOUBT_S = 5.0
"""How long a chat without an answer may do nothing before that counts as failed."""
QUIT = frozenset({"/quit", "/exit"})
"""Typed to leave; never sent."""
EXIT_STOPPED = 130
"""Exit code of a program that Ctrl-C ended."""


@attrs.frozen
class NoAnswer:
    code: str
    text: str


INTERRUPTED = NoAnswer("stopped", "the answer was not waited for")


_ANSWERED_LATER = ("/retry", "/edit", "/regenerate")


class Waiter:
    """Watches the events of one chat for what becomes of one message. Pure.

    When the message arrives, an older turn may be running, and other clients may talk in the same chat. So its answer
    is the first one, after the message, of a turn that was not running before it.

    Args:
        answered_later: it is a command whose reply may be followed by an answer.
    """

    def __init__(self, chat: str, message_id: str, *, answered_later: bool = False) -> None:
        self._chat, self._id, self._answered_later = chat, message_id, answered_later
        self._stored = False
        self._reply: MessageFrame | None = None
        self._older: set[str] = set()
        self.in_doubt = False
        """The chat does nothing: perhaps there will be no answer. If that stays so, see ``settle``."""

    def see(self, event: Event) -> MessageFrame | NoAnswer | None:
        """Take an event; returns the answer (or a command's reply) once it is there."""
        if getattr(event, "chat", None) != self._chat:
            return None
        match event:
            case MessageFrame():
                return self._see_entry(event)
            case Error(turn=str(turn)) if self.concerns(turn):
                return NoAnswer(event.code, event.message)
            case Status(ended="stopped", turn=str(turn)) if self.concerns(turn):
                return NoAnswer("stopped", "the answer was stopped")
            case Status(ended=None, state="idle" | "failed"):  # after a reconnect; the server may yet take it up
                self.in_doubt = self._stored
            case Status(turn=str(turn)) | Delta(turn=turn) | Tool(turn=turn):
                self._see_turn(turn)
            case _:
                pass
        return None

    def settle(self) -> MessageFrame | NoAnswer:
        """The outcome when the doubt has lasted long enough."""
        return self._reply or NoAnswer("no_answer", "the server made no answer; /retry tries again")

    def _see_turn(self, turn: str) -> None:
        if not self._stored:
            self._older.add(turn)
        elif turn not in self._older:
            self.in_doubt = False

    def _see_entry(self, entry: MessageFrame) -> MessageFrame | None:
        if entry.id == self._id:
            self._stored = True
            return None
        if not self._stored:
            return None
        if entry.role == "system" and entry.kind == "command":
            self._reply = entry
            self.in_doubt = self._answered_later
            return None if self._answered_later else entry
        return entry if entry.is_answer and entry.turn is not None and self.concerns(entry.turn) else None

    def concerns(self, turn: str) -> bool:
        return self._stored and turn not in self._older


class ShownAnswer:
    def __init__(self, turn: str) -> None:
        self.turn = turn
        self.text = ""
        self._contradicted = False

    @property
    def begun(self) -> bool:
        return bool(self.text)

    def piece(self, offset: int, text: str) -> str:
        """Take a streamed piece; returns what to show of it: nothing if it leaves a hole, or contradicts what was shown
        (another model began again). A later piece that closes the hole, or ``rest``, makes up for it."""
        known = len(self.text) - offset
        if known >= 0 and self.text[offset : offset + len(text)] != text[:known]:
            self._contradicted = True
        if known < 0 or self._contradicted:
            return ""
        added = text[known:]
        self.text += added
        return added

    def rest(self, content: str) -> str | None:
        """What is left to show of the whole stored answer; None: it does not begin with the pieces, since a mark was
        taken out, or another model began again."""
        for shown in (self.text, self.text.lstrip()):
            if content.startswith(shown):
                return content[len(shown) :]
        if self.text.strip() == content.strip():
            return ""
        return None


async def ask(client: Client, chat: str, text: str, see: Callable[[Event], None]) -> MessageFrame | NoAnswer:
    """Send a message to a watched chat and wait for its answer (or a command's reply).

    Args:
        see: gets the other events, but none of other turns.

    Raises:
        ServerRefused, ServerUnreachable, ClientClosed: the client ended.
    """
    waiter = Waiter(chat, message_id := new_id(), answered_later=text.lower().split(" ")[0] in _ANSWERED_LATER)
    for attempt in range(ATTEMPTS):
        try:
            await client.send(chat, text, message_id)
            break
        except RequestRefused as exc:
            if not exc.retryable or attempt == ATTEMPTS - 1:
                return NoAnswer(exc.code, str(exc))
            await trio.sleep((exc.retry_after_ms or PAUSE_S * 1000) / 1000)
    while True:
        with trio.move_on_after(DOUBT_S if waiter.in_doubt else math.inf):
            event = await client.next_event()
            verdict = waiter.see(event)
            turn = getattr(event, "turn", None)
            if isinstance(verdict, NoAnswer):
                return verdict
            if (turn is None or waiter.concerns(turn)) and getattr(event, "id", None) != message_id:
                see(event)
            if verdict is not None:
                return verdict
            continue
        return waiter.settle()
