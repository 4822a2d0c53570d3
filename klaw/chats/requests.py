"""What a chat's actor is asked."""

import attrs

from klaw.actor.mailbox import Reply
from klaw.domain.attachment import NamedFile
from klaw.store.kinds.messages import AppendedMessage
from klaw.store.kinds.variants.replace import Wish

WEBSOCKET, HTTP = "websocket", "http"
"""Channels. A program that asks over HTTP is answered at once; people may write a thought in several messages."""


@attrs.frozen(kw_only=True)
class Submit:
    """A user's message or slash command. Answered when it is durable."""

    id: str
    text: str
    reply: Reply[AppendedMessage] = attrs.Factory(Reply)
    channel: str = WEBSOCKET
    files: tuple[NamedFile, ...] = ()
    instructions: str = ""
    question: bool = False
    """Never read as a command, whatever it begins with."""
    model: str | None = None
    """The model that answers it; None: the chat's."""
    transcribed: bool = False
    """A model heard the text in its file."""


@attrs.frozen(kw_only=True)
class StopTurn:
    """Cancel the running turn. Answers whether one was running."""

    reply: Reply[bool]
    seq: int | None = None
    """Only a turn that answers up to this message, or has not read its messages yet."""


@attrs.frozen(kw_only=True)
class Recover:
    however_old: bool = False


@attrs.frozen(kw_only=True)
class Vary:
    """Show another variant of a message, and answer it where it is a new one. Answered when that is durable."""

    wish: Wish
    said: Submit
    """The new message; of a repeated answer what else than the text is to hold for it."""
    reply: Reply[AppendedMessage | None]
