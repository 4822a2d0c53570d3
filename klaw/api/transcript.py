"""What a client of another protocol sends: a whole transcript each time, of which only the last message is new. Which
chat it belongs to, what of it goes into the chat, and what is a question of the program itself.
"""

import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import attrs

from klaw.chats.directory import ChatDirectory
from klaw.convert import MAX_WHOLE, Form, Wire
from klaw.domain.attachment import MAX_FILES
from klaw.domain.message import Kind, Message, Role
from klaw.domain.names import ChatId, UserId, chat_id, chat_name
from klaw.errors import BadValue, InvalidName, Problem

CHAT_HEADERS = ("x-klaw-chat", "x-openwebui-chat-id", "x-conversation-id")
"""Headers that name the chat; the last is what LibreChat's documentation sends its conversation's id in."""
PREFIX = "api-"
"""Chats that were begun by a transcript without a name."""
MAX_CHATS = 50
"""Chats of a user, the last used first, among which a transcript is looked for …"""
MAX_ROWS = 24
"""… and how many of their last messages are looked at."""

MAX_MESSAGES = 10_000
"""Of a transcript."""
_BASE64 = 1 << 20
"""Decoded at once, so that other threads have their turn."""

_SIDE = re.compile(
    r"\s*(?:###\s*task:|analyze this conversation and provide:"
    r"|(?:please\s+)?(?:provide|generate|create|write)\s+a\s+(?:concise|short|brief)\b[^\n]{0,80}\btitle"
    r"\s+(?:for|of)\s+(?:the|this)\s+(?:conversation|chat)\b)",
    re.IGNORECASE,
)
"""How programs ask for a title, tags or follow-up questions: Open WebUI begins with "### Task:", LibreChat with
"Provide a concise, 5-word-or-less title for the conversation"."""


def _text(value: Any) -> str:
    """The text of a message's content: a text, or parts of which the texts count."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise TypeError("must be a text or a list of parts")
    parts = [each.get("text", "") for each in value if isinstance(each, Mapping) and each.get("type") != "refusal"]
    if any(isinstance(each, Mapping) and each.get("type") in ("input_audio", "file") for each in value):
        raise ValueError("sound and files are not taken here; send files as attachments of a chat")
    return "\n".join(each for each in parts if isinstance(each, str))


def _pictures(value: Any) -> list[str]:
    """The addresses of the pictures among a content's parts."""
    parts = [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
    pictures = [each.get("image_url") for each in parts if each.get("type") == "image_url"]
    found = [each.get("url") if isinstance(each, Mapping) else each for each in pictures]
    return [each if isinstance(each, str) else "" for each in found]


def _bytes_of(address: str, field: str) -> bytes:
    """The content of a picture. Raises BadValue: it is no data: URL; nothing is fetched from elsewhere."""
    head, comma, data = address.partition(",")
    with suppress(ValueError):
        if head.startswith("data:") and head.endswith(";base64") and comma and "=" not in data[:-2]:
            pieces = (data[at : at + _BASE64] for at in range(0, len(data), _BASE64))
            return b"".join(binascii.a2b_base64(each, strict_mode=True) for each in pieces)
    text = "must be a picture in base64 (data:image/png;base64,…); pictures are not fetched from other addresses"
    raise BadValue((Problem(field, text),))


@attrs.frozen(kw_only=True)
class Said:
    """A message of a transcript."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str, Form(_text, str)] = ""
    pictures: Annotated[list[str], Wire(name="content"), Form(_pictures, list)] = attrs.Factory(list)
    """Addresses; only those of the last message are looked at."""
    images: list[str] | None = None
    """As Ollama has them: base64."""

    @property
    def is_empty(self) -> bool:
        return not (self.content.strip() or self.pictures or self.images)


@attrs.frozen(kw_only=True)
class Transcript:
    """What is new in it, and what leads to its chat."""

    text: str
    """The last message of the user."""
    pictures: tuple[bytes, ...] = attrs.field(default=(), repr=False)
    """Of that message."""
    instructions: str
    """System texts of the program."""
    before: tuple[str, str] | None
    """The last pair of question and answer before."""

    @property
    def is_side_question(self) -> bool:
        """Whether the program asks for itself: a title, tags. It is answered and never stored."""
        return _SIDE.match(self.text) is not None


def read_transcript(messages: Sequence[Said]) -> Transcript:
    """Raises BadValue: there is no message of the user at its end; a picture in it is no data: URL."""
    system = [each.content for each in messages if each.role in ("system", "developer") and each.content.strip()]
    said = [each for each in messages if each.role in ("user", "assistant") and not each.is_empty]
    if not said or said[-1].role != "user":
        raise BadValue((Problem("messages", "must end with a text of the user"),))
    pairs = [(one.content, two.content) for one, two in pairwise(said) if (one.role, two.role) == ("user", "assistant")]
    addresses = [*said[-1].pictures, *(f"data:;base64,{each}" for each in said[-1].images or ())]
    if len(addresses) > MAX_FILES:
        raise BadValue((Problem("messages", f"must have at most {MAX_FILES} pictures in the last one"),))
    return Transcript(
        text=said[-1].content,
        pictures=tuple(_bytes_of(each, "messages") for each in addresses),
        instructions="\n\n".join(system),
        before=pairs[-1] if pairs else None,
    )


def named_chat(headers: Mapping[str, str], user_field: str | None) -> str | None:
    """The chat that a request names; None if it names none. What is no name of a chat becomes one."""
    header = next((headers[name] for name in CHAT_HEADERS if headers.get(name)), None)
    found = unquote(header) if header else user_field
    if not found:
        return None
    try:
        return chat_name(found)
    except InvalidName:
        return PREFIX + hashlib.sha256(found.encode("utf-8", "replace")).hexdigest()[:16]


async def chat_of(transcript: Transcript, chats: ChatDirectory, user: UserId, new_id: str) -> str:
    """The chat of a request that names none: the one in which the last pair of the transcript was said, else a new one.

    Clients resend everything, so this needs nothing kept beside the chats themselves.
    """
    if transcript.before is not None:
        for session in await chats.listed(user, MAX_CHATS, archived=False):
            if session.name.startswith(PREFIX) and await _holds(chats, chat_id(user, session.name), transcript.before):
                return session.name
    return PREFIX + new_id


async def _holds(chats: ChatDirectory, chat: ChatId, pair: tuple[str, str]) -> bool:
    rows = [each for each in await chats.before(chat, MAX_WHOLE, MAX_ROWS) if each.type in (Kind.TEXT, Kind.COMMAND)]
    texts = [each for each in rows if each.role is not Role.TOOL]
    return any(_is_pair(pair, one, two) for one, two in pairwise(texts))


def _is_pair(pair: tuple[str, str], one: Message, two: Message) -> bool:
    """What a client saw may begin with what was said before a tool was called."""
    asked, answered = pair
    return one.content.strip() == asked.strip() and answered.strip().endswith(two.content.strip() or "\0")
