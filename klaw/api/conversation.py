"""One message to a chat and what becomes of it, as a stream of events that ends with the answer."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict, cast

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw.api.openapi import JSON, PREFIX, About, DescribedRoute
from klaw.api.problems import MODEL_FAILED
from klaw.api.request_auth import Api, message_id
from klaw.api.streams import EVENTS, Stream, while_connected
from klaw.chats.directory import ChatDirectory
from klaw.chats.requests import HTTP, ClientCall, Submit
from klaw.convert import FRAMES, REQUESTS, Bounds
from klaw.domain.attachment import MAX_FILES, NamedFile
from klaw.domain.events import (
    ChatEvent,
    HealthChanged,
    Step,
    StepChanged,
    TextStreamed,
    ThoughtStreamed,
    TurnEnded,
    TurnStarted,
)
from klaw.domain.message import Message, MessageKind, Role, TurnStatus
from klaw.domain.names import ChatId, UserId, chat_id, name_of
from klaw.errors import ChatBusy
from klaw.gateway import answers
from klaw.gateway.answers import StoredOnce, error_frame
from klaw.gateway.services import Services
from klaw.store.kinds.variants.replace import Wish
from klaw.wire.codec import encode, tree_of
from klaw.wire.frames import ChatName, Delta, Send, StoredMessage, ThinkingFrame

MAX_EVENTS = 4096
"""Events that wait for a slow reader before it is given up; the answer is stored all the same."""
ANSWER_ROWS = 200
"""Messages behind a question among which its answer is looked for when it is asked a second time."""
LOOK_S = 5.0
"""Seconds without news after which it is checked whether anything still answers; after two such pauses nothing does."""
UNANSWERED = "nothing answers this message: send another one or /retry to try again"

ChatNews: TypeAlias = Message | ChatEvent


@attrs.frozen(kw_only=True)
class AnswerOutcome:
    status: TurnStatus | None
    """None: it was a command."""
    turn: str | None = None
    answer: Message | None = None
    code: str | None = None
    text: str | None = None


class SentMessage:
    """A message that was sent. Iterating gives what happens in the chat from then on, until ``outcome`` is known.
    Implements ``hub.Subscriber``."""

    message: Message
    outcome: AnswerOutcome | None = None
    turn: str | None = None
    """Answers the message; None until it has begun."""
    ignored: str | None = None
    """A turn that is over and waited for what goes on with it now."""

    def __init__(self, chats: ChatDirectory, chat: ChatId) -> None:
        self._chats, self._chat = chats, chat
        self._send, self._news = trio.open_memory_channel[ChatNews](MAX_EVENTS)
        self._repeated = False
        self._seen = False
        """Whether what comes is later than the message."""
        self._idle = False
        """Whether nothing ran in the chat at the last check."""
        self._answer: Message | None = None

    async def begin(self, message: Message, *, repeated: bool = False, again: bool = False) -> None:
        """The message is stored: by now, or ``repeated``, or it is to be answered ``again``."""
        self.message, self._repeated, self._seen = message, repeated, repeated or again
        if repeated:
            await self._look()

    def stored(self, stored: StoredOnce) -> None:
        self.happened(stored.message)

    def happened(self, event: ChatNews) -> None:
        if isinstance(event, ThoughtStreamed) and self._send.statistics().current_buffer_used > MAX_EVENTS // 2:
            return
        try:
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self._send.close()
        except trio.ClosedResourceError:
            pass

    def noticed(self, event: HealthChanged) -> None:
        pass

    def close(self) -> None:
        self._news.close()

    async def wait(self) -> AnswerOutcome:
        """Wait for the end. Raises ChatBusy when events came faster than they were taken."""
        async for _news in self:
            pass
        assert self.outcome is not None
        return self.outcome

    def __aiter__(self) -> "SentMessage":
        return self

    async def __anext__(self) -> ChatNews:
        """Raises ChatBusy when events came faster than they were taken."""
        while self.outcome is None:
            news = None
            with trio.move_on_after(LOOK_S):
                try:
                    news = await self._news.receive()
                except trio.EndOfChannel:
                    raise ChatBusy("events came faster than they were read; the answer is in the chat") from None
            if news is None:
                await self._look()
                continue
            self._idle = False
            self._seen = self._seen or (isinstance(news, Message) and news.id == self.message.id)
            if self._seen:
                self._learn(news)
                if self._repeated and isinstance(news, TurnEnded):
                    await self._look_for_answer()
                return news
        raise StopAsyncIteration

    def _learn(self, news: ChatNews) -> None:
        match news:
            case Message(metadata=metadata) if metadata.get("command") == self.message.id:
                self.outcome = AnswerOutcome(status=None, answer=news)
            case Message(role=Role.ASSISTANT, type=MessageKind.TEXT, metadata={"turn": turn}) if turn == self.turn:
                self._answer = news
            case TurnStarted(turn=turn, last_seq=last_seq) if last_seq >= self.message.seq:
                self.turn = turn
            case TurnEnded(turn=turn, status=status, code=code, text=text) if turn == self.turn:
                self.outcome = AnswerOutcome(status=status, turn=turn, answer=self._answer, code=code, text=text)
            case StepChanged(turn=None, step=Step.NOTHING):
                self.outcome = AnswerOutcome(status=TurnStatus.STOPPED)

    async def _look(self) -> None:
        """The message may have been answered before it was sent again, or what was to answer it may be gone."""
        idle = self._chats.rests(self._chat)
        await self._look_for_answer()
        if self.outcome is None and idle and self._idle and self.message.type is not MessageKind.COMMAND:
            self.outcome = AnswerOutcome(status=TurnStatus.FAILED, code="turn_failed", text=UNANSWERED)
        self._idle = idle

    async def _look_for_answer(self) -> None:
        # The turn first: its answer is stored with it, so what is read after it has the answer.
        record = await self._chats.answering(self._chat, self.message.seq)
        after = await self._chats.after(self._chat, self.message.seq, ANSWER_ROWS)
        for each in after:
            if each.metadata.get("command") == self.message.id:
                self.outcome = AnswerOutcome(status=None, answer=each)
                return
        if record is None or record.id == self.ignored:
            return
        texts = [each for each in after if each.role is Role.ASSISTANT and each.type is MessageKind.TEXT]
        of_turn = [each for each in texts if each.metadata.get("turn") == record.id]
        self.outcome = AnswerOutcome(
            status=record.status, turn=record.id, answer=of_turn[-1] if of_turn else None, code=record.error
        )


@attrs.frozen(kw_only=True)
class PlaceInChat:
    """Where a message goes in a chat, if not to its end."""

    again: Message | None = None
    """Nothing is sent; this message, whose turn failed, is to be answered."""
    replaced: Message | None = None
    """The message takes the place of this one; with ``same_question`` that is to be answered again."""
    same_question: bool = False
    turn: str | None = None
    """Nothing is sent but the results of ``calls``, for which this turn waits."""
    calls: tuple[ClientCall, ...] = ()


@asynccontextmanager
async def ask(
    services: Services, user: UserId, name: str, said: Submit, place: PlaceInChat | None = None
) -> AsyncIterator[SentMessage]:
    """Send a message; it is durable when the block begins. A repetition of an id brings the answer that there is.
    Raises as ``ChatDirectory.deliver``: nothing was stored."""
    chats, chat, place = services.chats, chat_id(user, name), place or PlaceInChat()
    asked = SentMessage(chats, chat)
    services.hub.watch(asked, chat)
    try:
        if place.turn is not None:
            question = await chats.keep_results(user, name, place.turn, place.calls)
            asked.ignored = place.turn
            record = await chats.answering(chat, question.message.seq)
            is_over = record is not None and record.id != place.turn and record.status is not TurnStatus.FAILED
            goes_on = question.repeated and (is_over or not chats.rests(chat))
            if not goes_on:
                await chats.retry(user, name, said)
            await asked.begin(question.message, repeated=goes_on, again=True)
        elif place.again is not None:
            await chats.retry(user, name, said)
            await asked.begin(place.again, again=True)
        elif place.replaced is not None:
            await chats.stop(user, name)  # who asks otherwise waits for no other answer
            wish = Wish(which=place.replaced.seq, edits=not place.same_question, files=said.files)
            open_question = await chats.vary(user, name, wish, said)
            assert open_question is not None
            await asked.begin(open_question.message, again=place.same_question)
        else:
            sent = await chats.deliver(user, name, said)
            await asked.begin(sent.message, repeated=sent.repeated)
        yield asked
    finally:
        services.hub.leave(asked)
        asked.close()


# -- sending a message over HTTP: what is told has the form of the WebSocket's frames (docs/protocol.md) ---------------


@attrs.frozen(kw_only=True)
class MessageBody:
    text: str = ""
    """Not blank, unless there are files."""
    files: Annotated[tuple[NamedFile, ...], Bounds(at_most=MAX_FILES)] = ()
    """Uploaded before. A message with files is never a command."""
    transcribed: bool = False
    """A model heard the text in a file (``voice_transcribe``)."""
    stream: bool = False
    wait: bool = True


class TurnFailure(TypedDict):
    code: str
    message: str


class SendAnswer(TypedDict):
    """All but ``message`` only where the answer was waited for; ``error`` if there is no answer."""

    message: StoredMessage
    status: NotRequired[str]
    turn: NotRequired[str | None]
    answer: NotRequired[StoredMessage | None]
    error: NotRequired[TurnFailure]


def routes(api: Api) -> list[Route]:
    async def send(request: Request) -> Response:
        user, services = api.grant(request).user, api.services
        new = await api.json(request, partial(REQUESTS.read, cls=MessageBody))
        chat = FRAMES.read(request.path_params["chat"], ChatName)
        frame = Send(id=message_id(request.headers, api), chat=chat, text=new.text, files=new.files)
        said = Submit(id=frame.id, text=frame.text, files=new.files, channel=HTTP, transcribed=new.transcribed)
        asking = ask(services, user, frame.chat, said)
        if new.stream or "text/event-stream" in request.headers.get("accept", ""):
            return cast("Response", Stream(partial(_tell, asking)))
        async with asking as asked:
            if not new.wait:
                return JSONResponse({"message": told(asked.message)}, 202)
            outcome = await while_connected(request.receive, asked.wait)
        return JSONResponse(
            {"message": told(asked.message), **ended(outcome)}, MODEL_FAILED if outcome.code is not None else 200
        )

    about = "Send a message; wait for the answer or follow it. With a known Idempotency-Key nothing is stored again."
    sent = About("messages_send", about, "chats", body=MessageBody, answer=SendAnswer, gives=(JSON, EVENTS))
    return [DescribedRoute(f"{PREFIX}/chats/{{chat}}/messages", send, "POST", sent)]


def told(message: Message) -> dict[str, Any]:
    tree: dict[str, Any] = tree_of(StoredMessage.of(message))
    return tree


def ended(outcome: AnswerOutcome) -> dict[str, Any]:
    error = None
    if outcome.code is not None:
        error = {"code": outcome.code, "message": outcome.text or "the answer failed"}
    return {
        "status": outcome.status.value if outcome.status is not None else "done",
        "turn": outcome.turn,
        "answer": told(outcome.answer) if outcome.answer is not None else None,
        **({"error": error} if error else {}),
    }


async def _tell(asking: AbstractAsyncContextManager[SentMessage], stream: Stream) -> None:
    """What happens until the answer is there, as frames; at the end ``done``."""
    async with asking as asked:
        try:
            async for news in asked:
                for frame in _frames(news):
                    await stream.put(event(frame))
        except ChatBusy as error:
            await stream.put(event(encode(error_frame(error))))
        if asked.outcome is not None:
            await stream.put(f"event: done\ndata: {json.dumps(ended(asked.outcome), ensure_ascii=False)}\n\n")


def _frames(news: ChatNews) -> list[str]:
    if isinstance(news, Message):
        return [answers.message_text(news, replayed=False)]
    if isinstance(news, TextStreamed):
        return [encode(Delta(chat=name_of(news.chat), turn=news.turn, offset=news.offset, text=news.text))]
    if isinstance(news, ThoughtStreamed):
        return [encode(ThinkingFrame(chat=name_of(news.chat), turn=news.turn, offset=news.offset, text=news.text))]
    return answers.event_texts(news)


def event(frame: str) -> str:
    """A frame as an event; its type is the event's name."""
    return f"event: {json.loads(frame)['type']}\ndata: {frame}\n\n"
