"""Who watches which chat: the event sink that the chats emit into, and the table of subscribers."""

from collections.abc import Callable
from typing import Protocol

import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.domain import events
from klaw.domain.message import Message, MessageKind
from klaw.domain.names import ChatId, UserId
from klaw.gateway.answers import StoredOnce
from klaw.gateway.rendering import RenderingPlaces

log = structlog.get_logger("klaw.gateway")


class Subscriber(Protocol):
    """Who is told of watched chats, and of the server's health. None of these methods may wait."""

    def stored(self, stored: StoredOnce) -> None: ...
    def happened(self, event: events.ChatEvent) -> None: ...
    def noticed(self, event: events.HealthChanged) -> None: ...


@attrs.define
class RunningAnswer:
    turn: str
    text: str = ""


class Hub:
    """The watchers of all chats; implements ``domain.events.EventSink``.

    The chats call it in the order of commits; it neither waits nor raises.
    """

    def __init__(self) -> None:
        self._everybody: dict[int, Subscriber] = {}
        self._watchers: dict[ChatId, dict[int, Subscriber]] = {}
        self._running: dict[ChatId, RunningAnswer] = {}
        self._in_sight: dict[int, UserId] = {}
        self.rendering = RenderingPlaces()
        self.unseen: Callable[[events.MessageStored | events.ApprovalAsked], None] | None = None
        """Is told of what a user may want to be notified of; None while nobody wants that."""

    def emit(self, event: events.Event) -> None:
        """Tell everybody concerned; an error of one subscriber is logged and concerns nobody else."""
        if self.unseen is not None and isinstance(event, events.MessageStored | events.ApprovalAsked):
            self.unseen(event)
        match event:
            case events.MessageStored(message=message):
                self._round_over(message)
                if watchers := self._watchers.get(message.chat):
                    stored = StoredOnce(message)
                    self._each(watchers, lambda watcher: watcher.stored(stored))
            case events.HealthChanged():
                self._each(self._everybody, lambda watcher: watcher.noticed(event))
            case _:
                self._follow(event)
                if watchers := self._watchers.get(event.chat):
                    self._each(watchers, lambda watcher: watcher.happened(event))

    def join(self, subscriber: Subscriber) -> None:
        self._everybody[id(subscriber)] = subscriber

    def leave(self, subscriber: Subscriber) -> None:
        self._everybody.pop(id(subscriber), None)
        self._in_sight.pop(id(subscriber), None)
        for chat, watchers in list(self._watchers.items()):
            if watchers.pop(id(subscriber), None) is not None and not watchers:
                del self._watchers[chat]

    def watch(self, subscriber: Subscriber, chat: ChatId) -> None:
        self._watchers.setdefault(chat, {})[id(subscriber)] = subscriber

    def set_in_sight(self, subscriber: Subscriber, user: UserId, *, visible: bool) -> None:
        """Say whether a user sees the page behind a connection."""
        self._in_sight.pop(id(subscriber), None)
        if visible:
            self._in_sight[id(subscriber)] = user

    def in_sight(self, user: UserId) -> bool:
        return user in self._in_sight.values()

    def running(self, chat: ChatId) -> RunningAnswer | None:
        return self._running.get(chat)

    def watchers(self, chat: ChatId) -> int:
        return len(self._watchers.get(chat, ()))

    def _round_over(self, message: Message) -> None:
        """What a turn said before a tool call is stored now: new watchers get it as a message."""
        running = self._running.get(message.chat) if message.type is MessageKind.TOOL_CALL else None
        if running is not None and running.turn == message.metadata.get("turn"):
            running.text = ""

    def _follow(self, event: events.ChatEvent) -> None:
        if isinstance(event, events.TurnStarted):
            self._running[event.chat] = RunningAnswer(event.turn)
        elif isinstance(event, events.TurnEnded):
            self._running.pop(event.chat, None)
        elif isinstance(event, events.TextStreamed):
            answer = self._running.get(event.chat)
            if answer is not None and answer.turn == event.turn:
                answer.text = answer.text[: event.offset] + event.text

    def _each(self, subscribers: dict[int, Subscriber], tell: Callable[[Subscriber], None]) -> None:
        for subscriber in list(subscribers.values()):
            try:
                tell(subscriber)
            except Exception as error:  # noqa: BLE001  a fault of one connection must not reach the chat that emits
                log.error("subscriber_failed", error=error_class(error), where=where(error))
