"""The tools ``current_time``, since models do not know what day it is, and ``send_message``, to another chat."""

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from klaw.actor.clock import Clock
from klaw.convert import Bounds
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import ChatId, chat_id, name_of
from klaw.domain.names import zone as zone_of
from klaw.domain.text import clean
from klaw.errors import InvalidName
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import chats, messages, tasks
from klaw.toolbox.spec import Permission, ToolContext, ToolFailure, ToolSpec, tool

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MAX_TEXT_CHARS = 16_000
MAX_NAMES_SHOWN = 20
ORIGIN = "tool"
"""The model wrote the message on its own; the user did not say it."""

Compose: TypeAlias = Callable[[ChatId, Role, MessageKind, str, dict[str, Any]], NewMessage]


def clock_tools(clock: Clock, readers: Readers) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.READ)
    async def current_time(
        context: ToolContext,
        zone: Annotated[str | None, "IANA zone: Europe/Moscow; without it the user's", Bounds(at_most=64)] = None,
    ) -> str | ToolFailure:
        """Tell the current date, weekday and time in a time zone. Use it whenever the answer depends on what day or
        time it is now."""
        zone = zone or await readers.run(tasks.zone, context.user)
        try:
            found = zone_of(zone) if zone is not None else None
        except InvalidName as error:
            return ToolFailure.of(error)
        now = dt.datetime.fromtimestamp(clock.now(), dt.UTC).astimezone(found)
        # Not strftime's %A: the names must not depend on the machine's language.
        shown = f"{WEEKDAYS[now.weekday()]}, {now.isoformat(timespec='seconds')}"
        return shown if found is None else f"{shown} ({found.key})"

    return (current_time,)


def message_tools(
    readers: Readers, writer: Writer, compose: Compose, stored: Callable[[], None]
) -> tuple[ToolSpec, ...]:
    """``stored`` is called after a message was stored, so that it is embedded."""

    @tool(permission=Permission.WRITE)
    async def send_message(
        context: ToolContext,
        chat: Annotated[str, "name of one of the user's other chats", Bounds(at_most=200)],
        text: Annotated[str, "the message", Bounds(at_least=1, at_most=MAX_TEXT_CHARS)],
    ) -> str | ToolFailure:
        """Put a message into another of the user's own chats, where they will see it. Use it only when the user asked
        for that, or when a scheduled task has something to tell. To answer here, just answer."""
        try:
            target = chat_id(context.user, chat)
        except InvalidName as invalid:
            return ToolFailure(f"Nothing was sent: {invalid}.")
        if target == context.chat:
            return ToolFailure("Nothing was sent: this is the chat you are in. Say it in your answer.")
        if not text.strip():
            return ToolFailure("Nothing was sent: the text is empty.")
        # The name is looked up among this user's chats only: what others have cannot make a difference.
        if await readers.run(chats.get, context.user, target) is None:
            return ToolFailure(f"Nothing was sent: the user has no chat of this name. {await _others(context)}")
        metadata = {"origin": ORIGIN, "sent_from": context.turn or context.run}
        message = compose(target, Role.ASSISTANT, MessageKind.TEXT, clean(text), metadata)
        await writer.run(messages.append, [message])
        stored()
        return f"Sent to {name_of(target)}."

    async def _others(context: ToolContext) -> str:
        listed = await readers.run(chats.listed, context.user, MAX_NAMES_SHOWN + 2)
        names = [each.name for each in listed if each.chat != context.chat]
        more = ", …" if len(names) > MAX_NAMES_SHOWN else ""
        return f"Their chats: {', '.join(names[:MAX_NAMES_SHOWN])}{more}." if names else "They have no other chat."

    return (send_message,)
