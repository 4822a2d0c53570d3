"""What a client of another protocol sends: a whole transcript each time, of which only the last message is new. Which
chat it belongs to, what of it that chat does not hold yet, and what is a question of the program itself."""

import binascii
import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import attrs

from klaw.api.side_questions import is_side_question
from klaw.chats.directory import ChatDirectory
from klaw.convert import Form, Wire
from klaw.domain.attachment import MAX_FILES, files_of
from klaw.domain.forget import FORGOTTEN, MARK
from klaw.domain.imported import ORIGIN
from klaw.domain.message import TOLD, Message, Role, TurnStatus
from klaw.domain.names import ChatId, UserId, chat_id, chat_name
from klaw.domain.text import clean, digest_of_words, one_line
from klaw.errors import BadValue, InvalidName, Problem

CHAT_HEADERS = ("x-klaw-chat", "x-openwebui-chat-id", "x-conversation-id")
"""Headers that name the chat; the last is what LibreChat's documentation sends its conversation's id in."""
PREFIX = "api-"
"""Begins the names of chats that a transcript without a name began."""
MAX_CHATS = 50
"""Newest chats of a user among which a transcript is looked for."""
ROWS_EACH, MORE_ROWS = 8, 32
"""Rows that are read of a chat for each message that came, and more: an answer may have several."""

MAX_MESSAGES = 10_000
_BASE64 = 1 << 20
"""Characters that are decoded at once, so that other threads have their turn."""


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, list):
        raise TypeError("must be a text or a list of parts")
    parts = [each.get("text") or each.get("refusal") for each in value if isinstance(each, Mapping)]
    if any(isinstance(each, Mapping) and each.get("type") in ("input_audio", "file") for each in value):
        raise ValueError("sound and files are not taken here; send files as attachments of a chat")
    return clean("\n".join(each for each in parts if isinstance(each, str)))


def _pictures(value: Any) -> list[str]:
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
class TranscriptMessage:
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str, Form(_text, str)] = ""
    pictures: Annotated[list[str], Wire(name="content"), Form(_pictures, list)] = attrs.Factory(list)
    images: list[str] | None = None
    """Pictures as Ollama has them, in base64; those above are addresses."""
    tool_calls: Annotated[Any, Form(lambda value: value, list)] = None
    """Calls of the client's own tools, in any form."""

    @property
    def is_empty(self) -> bool:
        return not (self.content.strip() or self.pictures or self.images or self.tool_calls)

    @property
    def is_system(self) -> bool:
        return self.role in ("system", "developer")

    def files(self) -> tuple[bytes, ...]:
        """Its pictures. Raises BadValue: one is no data: URL, or there are too many."""
        addresses = [*self.pictures, *(f"data:;base64,{each}" for each in self.images or ())]
        if len(addresses) > MAX_FILES:
            raise BadValue((Problem("messages", f"must have at most {MAX_FILES} pictures each"),))
        return tuple(_bytes_of(each, "messages") for each in addresses)


@attrs.frozen(kw_only=True)
class SentText:
    """A message of the user or of the assistant, as it came."""

    role: Literal["user", "assistant"]
    content: str
    files: tuple[bytes, ...] = attrs.field(default=(), repr=False)

    @cached_property
    def words(self) -> str:
        return one_line(self.content)

    @cached_property
    def digests(self) -> tuple[str, ...]:
        return tuple(hashlib.sha256(each).hexdigest() for each in self.files)


@attrs.frozen(kw_only=True)
class ClientTranscript:
    question: SentText
    history: tuple[SentText, ...]
    """What user and assistant said before; what the client's tools did is told in words."""
    instructions: str
    is_side_question: bool
    """The program asks for itself: a title, tags. It is answered and never stored."""


def read_transcript(messages: Sequence[TranscriptMessage], *, store: bool = True) -> ClientTranscript:
    """Read what came; it may take so long that it should run in a thread. ``store``: whether the request is to be
    stored. Raises BadValue: no message of the user is at its end; a picture is no data: URL."""
    kept = [each for each in messages if not each.is_empty]
    said = [each for each in kept if not each.is_system]
    by_system = bool(said) and said[-1].role == "assistant" and kept[-1].is_system
    if by_system:  # a program's task behind the conversation, such as a summary
        said.append(attrs.evolve(kept.pop(), role="user"))
    if not said or said[-1].role != "user":
        more = "; Klaw calls no tools of a client's" if said and said[-1].role in ("tool", "function") else ""
        raise BadValue((Problem("messages", f"must end with a text of the user{more}"),))
    system = [each.content for each in kept if each.is_system]
    is_side = by_system or not store or is_side_question(said[-1].content, system[0] if system else "")
    return ClientTranscript(
        question=SentText(role="user", content=said[-1].content, files=said[-1].files()),
        history=tuple(_in_words(said[:-1])),
        instructions="\n\n".join(system),
        is_side_question=is_side or (bool(system) and len(system) > 1 and is_side_question(system[-1])),
    )


def _in_words(said: Sequence[TranscriptMessage]) -> Iterator[SentText]:
    """Rounds of the client's tools, each as one text of the assistant."""
    told: list[str] = []
    for each in said:
        if each.role in ("tool", "function"):
            told.append(f"[result: {each.content}]")
            continue
        if each.role == "assistant" and (told or each.tool_calls):
            calls = each.tool_calls if isinstance(each.tool_calls, list) else []
            told += [each.content] * bool(each.content.strip())
            told += [f"[called {json.dumps(call, ensure_ascii=False)}]" for call in map(_called, calls)]
            if each.tool_calls:
                continue
        if told:
            yield SentText(role="assistant", content=clean("\n".join(told)))
        if each.role == "user" or not told:
            yield SentText(
                role="user" if each.role == "user" else "assistant", content=each.content, files=each.files()
            )
        told = []
    if told:
        yield SentText(role="assistant", content=clean("\n".join(told)))


def _called(call: Any) -> Any:
    return call.get("function", call) if isinstance(call, Mapping) else call


@attrs.frozen
class RequestedChat:
    name: str
    resends: bool
    """The program that names it so sends all that was said, each time."""


def named_chat(headers: Mapping[str, str], user_field: str | None) -> RequestedChat | None:
    """The chat that a request names; what is no name of a chat becomes one."""
    header = next((name for name in CHAT_HEADERS if headers.get(name)), None)
    found = unquote(headers[header]) if header else user_field
    if not found:
        return None
    try:
        name = chat_name(found)
    except InvalidName:
        name = PREFIX + hashlib.sha256(found.encode("utf-8", "replace")).hexdigest()[:16]
    return RequestedChat(name, resends=header in CHAT_HEADERS[1:])


# -- which chat --------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class TranscriptPlace:
    chat: str
    missing: tuple[SentText, ...] = ()
    """What came before the question and the chat does not hold."""
    again: Message | None = None
    """The question, if it stands there already and its turn failed."""
    replaced: Message | None = None
    """The message of the user whose place the question takes. What followed it is kept as another variant."""
    same_question: bool = False
    """It is that message itself, which is to be answered again."""


@attrs.define
class HeldMessage:
    """A message of a chat as a client saw it, with what the answer said before it called tools."""

    last: Message
    texts: list[str]

    def agrees(self, came: SentText) -> bool:
        """Whether what came is this message, apart from white space and from what was taken out of it since."""
        if came.role != self.last.role and not (came.role == "assistant" and self.last.role is Role.SYSTEM):
            return False
        metadata = self.last.metadata
        held, told = one_line(" ".join(self.texts)), came.words
        same = told == held or metadata.get(TOLD) == digest_of_words(told) or (MARK in held and _fits(held, told))
        same = same or unicodedata.normalize("NFC", told) == unicodedata.normalize("NFC", held) or _asks(held, told)
        if not same and not (metadata.get("stopped") and told and held.startswith(told)):
            return False
        return came.digests == tuple(each.sha256 for each in files_of(metadata))


async def place_of(
    transcript: ClientTranscript,
    chats: ChatDirectory,
    user: UserId,
    named: RequestedChat | None,
    new_chat: str,
    *,
    temporary: bool = False,
) -> TranscriptPlace:
    """Where the question goes.

    Into the chat that the request names, if what came agrees with all that the chat holds, with its end, because some
    clients send only that, or with its beginning where the rest is new to the chat; a program that does not resend
    everything may send nothing of it. Else into the chat, begun by a transcript, that holds exactly what came. An
    answer that is made again, or an edited question, becomes a variant: in the chat that the request names, or in the
    only one that begins so and gave one of the answers which came. Else into a new one. ``temporary``: a chat that is
    not named is to be temporary; else it is to be kept.
    """
    history, question = transcript.history, transcript.question
    if named is not None:
        held, whole = await _held(chats, chat_id(user, named.name), len(history))
        if _same(held, history):
            return TranscriptPlace(chat=named.name)
        if again := await _failed(chats, chat_id(user, named.name), held, history, question):
            return TranscriptPlace(chat=named.name, again=again)
        if whole and _same(held, history[: len(held)]):
            return TranscriptPlace(chat=named.name, missing=history[len(held) :])
        if history:
            begins_so = whole and _same(held[: len(history)], history)
            goes_on = not begins_so and _same(held[-len(history) :], history)
        else:
            is_made_again = whole and len(held) == 2 and _same(held[:1], [question])
            goes_on = not named.resends and not is_made_again
        if goes_on:
            return TranscriptPlace(chat=named.name)
        if place := await _parting(chats, user, named.name, history, question):
            return place
    found = await _unnamed(chats, user, history, question, temporary=temporary)
    return found or TranscriptPlace(chat=new_chat, missing=history)


async def _unnamed(
    chats: ChatDirectory, user: UserId, history: Sequence[SentText], question: SentText, *, temporary: bool
) -> TranscriptPlace | None:
    listed = await chats.listed(user, MAX_CHATS, archived=False) if history else ()
    begun = [each for each in listed if each.name.startswith(PREFIX) and each.temporary is temporary]
    for session in begun:
        chat = chat_id(user, session.name)
        last, _ = await _held(chats, chat, 1)
        if not any(FORGOTTEN in each.last.metadata or each.agrees(history[-1]) for each in last[-2:]):
            continue
        held, whole = await _held(chats, chat, len(history))
        if whole and _same(held, history):
            return TranscriptPlace(chat=session.name)
        if whole and (again := await _failed(chats, chat, held, history, question)):
            return TranscriptPlace(chat=session.name, again=again)
    alike: list[TranscriptPlace] = []
    for session in begun:
        place = await _parting(chats, user, session.name, history, question, answered_here=True)
        alike += [place] if place is not None else []
    # Of several that begin alike nobody can tell which is meant; and where an answer is written, somebody else waits.
    if len(alike) == 1 and chats.chat_status(chat_id(user, alike[0].chat))["state"] in ("idle", "failed"):
        return alike[0]
    return None


async def _parting(
    chats: ChatDirectory,
    user: UserId,
    name: str,
    history: Sequence[SentText],
    question: SentText,
    *,
    answered_here: bool = False,
) -> TranscriptPlace | None:
    """The place in a chat that begins with what came and goes on otherwise; ``answered_here``: only if an answer that
    came was given there. Where something is forgotten nobody can tell."""
    held, _ = await _held(chats, chat_id(user, name), len(history) + 1, oldest=True)
    begin = held[: len(history) + 1]
    if len(begin) <= len(history) or any(FORGOTTEN in each.last.metadata for each in begin):
        return None
    *before, old = begin
    if old.last.role is not Role.USER or not _same(before, history):
        return None
    answers = (each.last for each in before if each.last.role is Role.ASSISTANT)
    if answered_here and all(each.channel.startswith(ORIGIN) for each in answers):
        return None
    return TranscriptPlace(chat=name, replaced=old.last, same_question=old.agrees(question))


def _asks(held: str, told: str) -> bool:
    """Whether a text is the question in the template that Open WebUI puts around it once, when it has a file."""
    behind = (
        held.rpartition("</context> ")[2] if told and held.startswith("### Task: Respond to the user query") else ""
    )
    return told in (behind, behind.removeprefix("<user_query> ").removesuffix(" </user_query>"))


def _fits(held: str, told: str) -> bool:
    """Whether a text is another one in which ``MARK`` stands for what was forgotten."""
    first, *rest = held.split(MARK)
    place = len(first)
    for piece in rest:
        found = told.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return told.startswith(first) and told.endswith(rest[-1])


def _same(held: Sequence[HeldMessage], came: Sequence[SentText]) -> bool:
    """Whether they agree, one by one. What was forgotten must not come back because a client still has it: what stands
    before and behind it decides, however many messages it was."""
    gone = [number for number, each in enumerate(held) if FORGOTTEN in each.last.metadata]
    if not gone:
        return len(held) == len(came) and all(one.agrees(other) for one, other in zip(held, came, strict=True))
    before, behind = held[: gone[0]], held[gone[-1] + 1 :]
    return (
        0 < len(before) + len(behind) < len(came)
        and _same(before, came[: len(before)])
        and _same(behind, came[len(came) - len(behind) :])
    )


async def _failed(
    chats: ChatDirectory, chat: ChatId, held: Sequence[HeldMessage], history: Sequence[SentText], question: SentText
) -> Message | None:
    """The question at the end of a chat, if it is asked again because its turn failed."""
    if not held or not held[-1].agrees(question) or (history and not _same(held[:-1], history)):
        return None
    record = await chats.answering(chat, held[-1].last.seq)
    return held[-1].last if record is not None and record.status is TurnStatus.FAILED else None


async def _held(
    chats: ChatDirectory, chat: ChatId, count: int, *, oldest: bool = False
) -> tuple[list[HeldMessage], bool]:
    """A chat's newest messages, or its ``oldest``, as a client saw them, oldest first, and whether those are all."""
    most = ROWS_EACH * count + MORE_ROWS
    rows = await chats.shown(chat, most, oldest=oldest)
    found: list[HeldMessage] = []
    for row in rows:
        turn = row.metadata.get("turn")
        goes_on = found and turn is not None and found[-1].last.metadata.get("turn") == turn
        if goes_on and row.role is Role.ASSISTANT:
            found[-1] = HeldMessage(row, [*found[-1].texts, row.content])
        else:
            found.append(HeldMessage(row, [row.content]))
    return found, len(rows) < most
