"""What a chat's actor is asked."""

from collections.abc import Callable
from typing import TypeAlias

import attrs

from klaw.actor.mailbox import Reply
from klaw.domain.attachment import NamedFile
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds.messages import AppendedMessage

WEBSOCKET = "websocket"
"""The channel of people, who may write a thought in several messages; other channels are answered at once."""


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


@attrs.frozen(kw_only=True)
class StopTurn:
    """Cancel the running turn. Answers whether one was running."""

    reply: Reply[bool]
    seq: int | None = None
    """Only a turn that answers up to this message, or has not read its messages yet."""


@attrs.frozen(kw_only=True)
class Recover:
    however_old: bool = False


VariantChange: TypeAlias = Callable[[Transaction], AppendedMessage | None]
"""Shows another variant. Returns the question that is answered then, if there is one. Raises a KlawError."""


@attrs.frozen(kw_only=True)
class Vary:
    """Show another variant of some messages. Answered when that is durable."""

    change: VariantChange
    reply: Reply[AppendedMessage | None]
    answered: Submit | None = None
    """Its ``instructions`` and ``model`` hold for that answer."""
