"""Which chat the transcript of a client belongs to, and what of it that chat does not hold yet."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import attrs

from klaw.api.client_messages import ClientTranscript, SentCall, SentText
from klaw.api.conversation import PlaceInChat
from klaw.chats.directory import ChatDirectory
from klaw.chats.requests import ClientCall, Submit
from klaw.context.repair import calls_of
from klaw.domain.attachment import files_of
from klaw.domain.branch import REPLACED
from klaw.domain.forget import FORGOTTEN, MARK
from klaw.domain.imported import ORIGIN
from klaw.domain.message import CLIENT_CALLS, TOLD, Message, MessageKind, Role, TurnStatus
from klaw.domain.names import ChatId, UserId, chat_id, chat_name, name_of
from klaw.domain.text import digest_of_words, one_line
from klaw.errors import BadValue, InvalidName, Problem
from klaw.llm.types import is_offered_as
from klaw.store.kinds.variants.replace import Wish

CHAT_HEADERS = ("x-klaw-chat", "x-openwebui-chat-id", "x-conversation-id")
"""Headers that name the chat; the last is what LibreChat's documentation sends its conversation's id in."""
PREFIX = "api-"
"""Begins the names of chats that a transcript without a name began."""
MAX_CHATS = 50
"""Newest chats of a user among which a transcript is looked for."""
ROWS_EACH, MORE_ROWS = 8, 32
"""Rows that are read of a chat for each message or call that came, and more: an answer may have several."""
ROWS_BEHIND = 1_000
"""Rows behind an answer among which the next message of the user is looked for."""


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


@attrs.frozen(kw_only=True)
class TranscriptPlace:
    chat: str
    missing: tuple[SentText, ...] = ()
    """What came before the question and the chat does not hold."""
    place: PlaceInChat = attrs.Factory(PlaceInChat)


@attrs.define
class HeldMessage:
    """A message of a chat as a client saw it, with what the answer said before it called tools."""

    last: Message
    texts: list[str] = attrs.Factory(list)
    calls: list[str] = attrs.Factory(list)
    """Ids of those that the client carried out."""

    def add(self, row: Message) -> None:
        self.last = row
        self.texts += filter(str.strip, [row.content])
        self.calls += row.metadata.get(CLIENT_CALLS, ())

    @property
    def waits(self) -> bool:
        """Whether it ends with calls, which have no results, or whose turn has not gone on."""
        return CLIENT_CALLS in self.last.metadata

    def agrees(self, came: SentText) -> bool:
        """Whether what came is this message, apart from white space and from what was taken out of it since."""
        if came.role != self.last.role and not (came.role == "assistant" and self.last.role is Role.SYSTEM):
            return False
        held, metadata = one_line(" ".join(self.texts)), self.last.metadata
        if self.calls and came.calls:
            ids = {call.id for call in came.calls} - {None}
            return ids <= set(self.calls) and one_line(came.said) == held
        told = came.words
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
    only one that begins so and gave one of the answers which came. Else into a new one. What the client's tools gave
    goes on with the turn that called them, while it waits. ``temporary``: a chat that is not named is to be temporary;
    else it is to be kept.
    """
    history, question = transcript.history, transcript.question
    if transcript.rounds and (waiting := await _waiting(transcript, chats, user, named)):
        return waiting
    if named is not None:
        held, whole = await _held(chats, chat_id(user, named.name), _count(history))
        if _same(held, history):
            return TranscriptPlace(chat=named.name)
        may_fail = history or not named.resends or len(held) == 1
        if may_fail and (again := await _failed(chats, chat_id(user, named.name), held, history, question)):
            return TranscriptPlace(chat=named.name, place=PlaceInChat(again=again))
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


async def place_behind(
    rows: Sequence[Message], transcript: ClientTranscript, chats: ChatDirectory, new_id: str
) -> TranscriptPlace:
    """The place behind an answer, given by what its turn left. The variant that it is in is shown, and what followed it
    there is replaced. Raises BadValue, AnswerRunning."""
    last, missing = rows[-1], tuple(each for each in transcript.history if not each.is_open)
    name = name_of(last.chat)
    here, *behind = await chats.after(last.chat, last.seq - 1, ROWS_BEHIND)
    if REPLACED in here.metadata:
        await chats.vary(last.user, name, Wish(which=last.id, number=1), Submit(id=new_id, text=""))
        here, *behind = await chats.after(last.chat, last.seq - 1, ROWS_BEHIND)
    if transcript.rounds:
        for row in rows:
            if CLIENT_CALLS in row.metadata and (called := results_for(row, transcript.calls)):
                return TranscriptPlace(chat=name, place=PlaceInChat(turn=row.metadata["turn"], calls=called))
        raise BadValue((Problem("input", "must have the results of all calls of the response"),))
    asked = next((each for each in behind if (each.role, each.type) == (Role.USER, MessageKind.TEXT)), None)
    if asked is not None and missing:
        text = "must be one message where an earlier response than the newest is gone on from"
        raise BadValue((Problem("input", text),))
    return TranscriptPlace(chat=name, missing=missing, place=PlaceInChat(replaced=asked))


async def _waiting(
    transcript: ClientTranscript, chats: ChatDirectory, user: UserId, named: RequestedChat | None
) -> TranscriptPlace | None:
    """The turn that waits for the results at the end, if its chat agrees with all that came before its question; where
    it has gone on with them, its question once more."""
    history = transcript.history
    for message in await chats.client_calls(user):
        name, called = name_of(message.chat), results_for(message, transcript.calls)
        if called is None or (named is not None and named.name != name):
            continue
        held, _ = await _held(chats, message.chat, _count(history) + len(transcript.rounds) + 2)
        if len(held) < 2 or not held[-2].agrees(transcript.question):
            continue
        before = held[:-2] if len(held) <= len(history) + 2 else held[-2 - len(history) : -2]
        if _same(before, history) or (named is not None and not named.resends and not history):
            waits = PlaceInChat(turn=message.metadata["turn"], calls=called)
            once_more = PlaceInChat(replaced=held[-2].last, same_question=True)
            return TranscriptPlace(chat=name, place=waits if held[-1].waits else once_more)
    return None


def results_for(message: Message, came: Sequence[SentCall]) -> tuple[ClientCall, ...] | None:
    """The results that came, if they are those of the calls in a message; by names and arguments where the protocol has
    no ids."""
    ids: Sequence[str] = message.metadata[CLIENT_CALLS]
    held = [call for call in calls_of(message) if call.id in ids]
    by_id = {call.id: call for call in came}
    pairs = [(call, by_id.get(call.id)) for call in held] if None not in by_id else [*zip(held, came, strict=False)]
    results = tuple(
        ClientCall(id=call.id, name=call.name, arguments=call.arguments, result=sent.result)
        for call, sent in pairs
        if sent is not None and sent.result is not None and is_offered_as(sent.name, call.name)
        if sent.id is not None or _arguments(sent.arguments) == _arguments(call.arguments)
    )
    return results if len(results) == len(held) == len(came) else None


def _arguments(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return text


async def _unnamed(
    chats: ChatDirectory, user: UserId, history: Sequence[SentText], question: SentText, *, temporary: bool
) -> TranscriptPlace | None:
    listed = await chats.listed(user, MAX_CHATS, archived=False) if history else ()
    begun = [each for each in listed if each.name.startswith(PREFIX) and each.temporary is temporary]
    for session in begun:
        chat = chat_id(user, session.name)
        last, _ = await _held(chats, chat, _count(history[-1:]))
        if not any(FORGOTTEN in each.last.metadata or each.agrees(history[-1]) for each in last[-2:]):
            continue
        held, whole = await _held(chats, chat, _count(history))
        # A transcript that ends with a question whose answer failed must not get into a chat that answers the same one.
        if whole and _same(held, history) and (history[-1].role == "assistant" or chats.rests(chat)):
            return TranscriptPlace(chat=session.name)
        if whole and (again := await _failed(chats, chat, held, history, question)):
            return TranscriptPlace(chat=session.name, place=PlaceInChat(again=again))
    alike: list[TranscriptPlace] = []
    for session in begun:
        place = await _parting(chats, user, session.name, history, question, answered_here=True)
        alike += [place] if place is not None else []
    # Of several that begin alike nobody can tell which is meant; and where an answer is written, somebody else waits.
    if len(alike) == 1 and chats.rests(chat_id(user, alike[0].chat)):
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
    held, _ = await _held(chats, chat_id(user, name), _count(history) + 1, oldest=True)
    begin = held[: len(history) + 1]
    if len(begin) <= len(history) or any(FORGOTTEN in each.last.metadata for each in begin):
        return None
    *before, old = begin
    if old.last.role is not Role.USER or not _same(before, history):
        return None
    answers = (each.last for each in before if each.last.role is Role.ASSISTANT)
    if answered_here and all(each.channel.startswith(ORIGIN) for each in answers):
        return None
    place = PlaceInChat(replaced=old.last, same_question=old.agrees(question))
    return TranscriptPlace(chat=name, place=place)


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


def _count(history: Sequence[SentText]) -> int:
    """Messages, and calls of the client's tools: each may have been a round of its own."""
    return len(history) + sum(len(each.calls) for each in history)


async def _held(
    chats: ChatDirectory, chat: ChatId, count: int, *, oldest: bool = False
) -> tuple[list[HeldMessage], bool]:
    """A chat's newest messages, or its ``oldest``, as a client saw them, oldest first, and whether those are all."""
    most = ROWS_EACH * count + MORE_ROWS
    rows = await chats.shown(chat, most, oldest=oldest)
    found: list[HeldMessage] = []
    for row in rows:
        before, turn = found[-1].last if found else None, row.metadata.get("turn")
        same_turn = before is not None and turn is not None and before.metadata.get("turn") == turn
        goes_on = same_turn or (before is not None and CLIENT_CALLS in before.metadata)
        if not (goes_on and row.role is Role.ASSISTANT):
            found.append(HeldMessage(row))
        found[-1].add(row)
    return found, len(rows) < most
