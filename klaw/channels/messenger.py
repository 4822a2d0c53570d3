"""What a messenger does for Klaw. A messenger is one module; it knows its service, and nothing of chats, users or the
store. ``klaw.channels.channel`` does the rest, the same for all."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import attrs

from klaw.errors import KlawError


@attrs.frozen(kw_only=True)
class Sender:
    """An account of the service."""

    id: str
    name: str
    """As other people see it."""
    language: str = ""
    """Of the person, where the service tells it: ``ru``, ``en-GB``."""


@attrs.frozen(kw_only=True)
class ChannelConversation:
    id: str
    """The id of the room or dialogue in the service, with that of the thread or topic behind a space, if it is one."""
    title: str = ""
    group: bool = False
    """More people than one may read it."""


def room_of(conversation: str) -> str:
    """The room or dialogue that a conversation is, or is a thread of."""
    return conversation.partition(" ")[0]


@attrs.frozen(kw_only=True)
class IncomingFile:
    name: str
    type: str
    """Media type as the service tells it; may be empty."""
    bytes: int | None
    place: Any
    """Where the messenger finds it."""
    voice: bool = False
    """Somebody speaks in it, and it is to be heard, not kept as a file only."""


@attrs.frozen(kw_only=True)
class IncomingMessage:
    """Something that was said. Locations, contacts, polls and stickers come as text; text from elsewhere (a forwarded
    message, what is replied to) is quoted in ``text`` with ``> ``."""

    id: str
    """By which a repetition is recognised; unique in the account. At most 40 of A-Z, a-z, 0-9, ``_``, ``.``, ``:``,
    ``-``."""
    conversation: ChannelConversation
    sender: Sender
    at: float
    """When it was sent (Unix seconds)."""
    text: str = ""
    files: tuple[IncomingFile, ...] = ()
    addressed: bool = True
    """In a group: it mentions the bot, replies to it, or is a command for it (without ``@bot`` behind the word)."""
    edits: str | None = None
    """``id`` of the message whose text this replaces."""


@attrs.frozen(kw_only=True)
class ButtonPress:
    """Somebody chose a button of a message."""

    conversation: ChannelConversation
    sender: Sender
    data: str
    """``Button.data``."""
    message: str
    """The id of the message with the button, as ``Messenger.post`` gave it."""
    token: Any = None
    """What ``Messenger.confirm`` needs."""


@attrs.frozen(kw_only=True)
class BotInvited:
    """The bot was invited into a conversation, or added to it."""

    conversation: ChannelConversation
    sender: Sender
    unreadable: bool = False
    """It is encrypted end to end, and nothing in it can be read."""


@attrs.frozen(kw_only=True)
class BotRemoved:
    """The bot cannot write there any more: it was removed, or the person has blocked it."""

    conversation: str


@attrs.frozen(kw_only=True)
class OthersCanRead:
    """More people than one can read a room, which may have been private."""

    conversation: ChannelConversation


@attrs.frozen(kw_only=True)
class NewConversationId:
    """A conversation has another id from now on."""

    conversation: str
    to: str


@attrs.frozen(kw_only=True)
class MessageDeletion:
    """Somebody has deleted a message for everybody."""

    conversation: ChannelConversation
    id: str
    """``IncomingMessage.id`` of the message."""


ChannelEvent: TypeAlias = (
    IncomingMessage | ButtonPress | BotInvited | BotRemoved | OthersCanRead | NewConversationId | MessageDeletion
)


@attrs.frozen(kw_only=True)
class EventBatch:
    events: tuple[ChannelEvent, ...]
    position: str
    """What ``receive`` continues from, once all events are stored."""


@attrs.frozen(kw_only=True)
class Button:
    label: str
    data: str
    """At most 64 bytes."""


@attrs.frozen(kw_only=True)
class Part:
    """A message in the service's own form, made from Markdown; no longer than a message may be."""

    text: str
    """Without any formatting: the fallback where the formatted one is refused."""
    formatted: str


@attrs.frozen(kw_only=True)
class Limits:
    edit_pause_s: float
    """At least so long between two edits of a growing answer."""
    download_bytes: int
    upload_bytes: int


@attrs.frozen(kw_only=True)
class Bot:
    """Who Klaw is in the service."""

    id: str
    name: str
    """By which people find it: ``@klaw_bot``, ``@klaw:example.org``."""
    link: str
    """Opens a conversation with it; ``{code}`` stands where the pairing code goes, if a link can carry one."""


class ChannelError(KlawError):
    """The service could not be asked, or has refused. The text says why, in the service's own words where they may be
    shown (secrets masked)."""

    code = "channel_failed"


class Unreachable(ChannelError):
    """No connection, a time-out, or an error of the service (5xx): the same request may work later."""


class TooManyRequests(Unreachable):
    """Too many requests. ``after_s``: when to ask again; ``conversation``: the one that is meant; None: all."""

    def __init__(self, after_s: float, conversation: str | None = None) -> None:
        super().__init__(f"too many requests; again in {after_s:g} s")
        self.after_s, self.conversation = after_s, conversation


class WrongToken(ChannelError):
    """The token is not valid, or no longer."""


class ReceivedElsewhere(ChannelError):
    """Another program receives with the same token."""


class RefusedByMessenger(ChannelError):
    """The service does not take this message, whatever happens; it will not take it later either."""


class ConversationClosed(ChannelError):
    """Nothing can be sent to the conversation any more (see ``BotRemoved``)."""


class ConversationMoved(ChannelError):
    """The conversation has another id, ``to``; the request may be repeated there."""

    def __init__(self, to: str) -> None:
        super().__init__("the conversation has another id now")
        self.to = to


class Messenger(Protocol):
    """One account of a service. All methods raise ChannelError. Where a method takes ``conversation``, it is
    ``ChannelConversation.id``; ids of messages are the service's, as text."""

    limits: ClassVar[Limits]

    async def open(self) -> Bot:
        """Learn who the bot is. Called before all others, and again after an error."""
        ...

    async def receive(self, position: str | None) -> EventBatch:
        """Wait up to a minute for what comes. With ``position`` the service may forget what came before it; None: from
        now on. May return no events."""
        ...

    def render(self, markdown: str) -> list[Part]:
        """The messages that show a text: split between blocks where they can be, never inside a grapheme or link;
        code that goes on in the next part is closed and opened again. Nothing of an empty text. Pure."""
        ...

    async def post(self, conversation: str, part: Part, key: str, *, buttons: Sequence[Button] = ()) -> str:
        """Send a message; returns its id. ``key``: the same for a repetition."""
        ...

    async def edit(self, conversation: str, message: str, part: Part, key: str) -> None:
        """Let an own message say something else, without buttons. Nothing happens if it says so already. Raises
        RefusedByMessenger: the message is gone or too old."""
        ...

    async def upload(
        self, conversation: str, name: str, media_type: str, data: bytes, key: str, *, voice: bool = False
    ) -> str:
        """Send a file, as picture or sound if it is one, with ``voice`` as a voice message. Returns the message's
        id."""
        ...

    def download(self, file: IncomingFile) -> AsyncIterator[bytes]:
        """The bytes of a file. Raises RefusedByMessenger: it is gone, or larger than ``Limits.download_bytes``."""
        ...

    async def working(self, conversation: str) -> None:
        """Show for a few seconds that an answer is being written."""
        ...

    async def confirm(self, pressed: ButtonPress, text: str) -> None:
        """Show who has pressed a button what came of it, where the service can; else nothing."""
        ...

    async def leave(self, conversation: str) -> None:
        """Go out of a conversation, or decline the invitation."""
        ...

    async def join(self, conversation: str) -> None:
        """Accept an invitation; nothing where there are none."""
        ...

    async def show_commands(self, commands: Mapping[str, Mapping[str, str]]) -> None:
        """Offer commands as a menu, where there is one: for each language (``en`` for all others) word to help."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
