"""What a chat's actor is asked."""

from collections.abc import Sequence
from typing import Any

import attrs

from klaw.actor.mailbox import Mailbox, Reply
from klaw.core import Core
from klaw.domain.attachment import NamedFile
from klaw.domain.names import ChatId, user_of
from klaw.errors import ActorStopped, KlawError
from klaw.store.kinds.messages import AppendedMessage
from klaw.store.kinds.variants.replace import Wish
from klaw.toolbox.mcp.references import McpReference, attach, references_in
from klaw.toolbox.mcp.server import McpServer

FROM_MCP = "from_mcp"
"""Key in the metadata of a message: some of its files were read from MCP servers."""
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
    attached: bool = False
    """What it names of MCP servers is among its files."""


def named_in(submit: Submit, chat: ChatId, servers: Sequence[McpServer]) -> list[McpReference]:
    """What a message names of MCP servers and does not have yet."""
    return [] if submit.question or submit.attached else references_in(submit.text, user_of(chat), servers)


async def attach_to(
    submit: Submit, found: Sequence[McpReference], chat: ChatId, mailbox: Mailbox[Any], core: Core
) -> None:
    """Read what a message names of MCP servers, while its chat goes on, and hand it to the chat again."""
    try:
        files = await attach(found, user_of(chat), core)
        if mailbox.closed:
            raise ActorStopped("the chat is being stopped: send the message again")
        mailbox.tell_self(attrs.evolve(submit, files=(*submit.files, *files), attached=True))
    except KlawError as error:
        submit.reply.fail(error)


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
