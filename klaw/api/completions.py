"""What the faces for other protocols share: a transcript becomes a message of a chat, or a question of the program
itself to the model alone, and the answer comes in pieces."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from io import BytesIO
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar
from urllib.parse import quote

import attrs
import trio
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import Receive

from klaw.actor.clock import iso
from klaw.actor.threads import read_input
from klaw.api import transcript as transcripts
from klaw.api.client_messages import MAX_MESSAGES, ClientTranscript, SentCall, TranscriptMessage, read_transcript
from klaw.api.conversation import SentMessage, ask
from klaw.api.problems import of_error
from klaw.api.request_auth import Api, headers_of, message_id, prefix_of
from klaw.api.side_questions import HOLE, has_hole
from klaw.api.streams import Stream, while_connected
from klaw.chats.requests import HTTP, Submit
from klaw.context.repair import calls_of
from klaw.convert import FRAMES, Bounds
from klaw.domain import imported, tokens
from klaw.domain.attachment import HEAD_BYTES, NamedFile, sniff
from klaw.domain.events import TextStreamed, ThoughtStreamed, TurnStarted
from klaw.domain.message import CLIENT_CALLS, CUT, Role, TurnRecord, TurnStatus
from klaw.domain.names import UserId, chat_id, name_of
from klaw.domain.text import clean
from klaw.errors import BadValue, CannotReplace, HttpRefusal, KlawError, Problem
from klaw.llm.errors import ProviderError, ProviderMalformed
from klaw.llm.providers.adapt import request_tokens
from klaw.llm.providers.refusals import parsed
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, ModelOptions, Request, ToolCall, Usage, own_name
from klaw.operations import imports
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.store.kinds import messages

MODEL = "klaw"
"""The only model that others see: which one answers is decided here."""
_CUTS = ("length", "content_filter")
MAX_SIDE_TOKENS = 2_000
"""Most tokens of an answer to a program's own question: a summary, or a title after much thinking."""
MAX_SIDE_CHARS = 1_000
"""A longer question of a program brings along what it asks about."""
MAX_SIDE_ROWS = 20
"""Newest messages of the chat that a shorter one is about."""
STORE = "x-klaw-store"
"""Header; ``false``: the request is answered as a program's own question."""
FILL = (
    f"The text has a hole, at {HOLE} or between the marks of prefix and suffix. Answer with nothing but what belongs"
    " there, so that all of it fits together: no explanation, no Markdown around it."
)
STOP_S = 5.0
"""How long the stop of a turn is waited for whose client has gone."""

OnText: TypeAlias = Callable[[str], Awaitable[None]]


@attrs.frozen(kw_only=True)
class ChatRequest:
    """Body of a request, as far as Klaw reads it. Which model answers is the server's own matter."""

    messages: Annotated[list[TranscriptMessage], Bounds(1, MAX_MESSAGES)]
    stream: bool | None = None
    user: str | None = None
    """The chat that it names."""

    NAMES: ClassVar[Mapping[str, str]] = {}
    """What the API calls a field that has another name here; for errors."""

    @classmethod
    async def in_chat_form(cls, tree: dict[str, Any], _api: Api, _user: UserId) -> dict[str, Any]:
        """A body in the form of chat completions. Raises BadValue, OperationError."""
        return tree

    @classmethod
    def named(cls, path: str) -> str:
        """The path of a field as the API has it."""
        head = re.match(r"\w*", path)
        return cls.NAMES.get(head[0], path) if head else path

    def options(self) -> ModelOptions:
        """Raises BadValue: it requires what is not done here."""
        return ModelOptions()


R = TypeVar("R", bound=ChatRequest)


def prompt_messages(prompt: Any, suffix: Any, system: Any = None, images: Any = None) -> list[dict[str, Any]]:
    """What an API without messages asks for, as messages. A prompt with a hole is no talk (``side_questions``). Raises
    BadValue."""
    for name, value in {"prompt": prompt, "suffix": suffix}.items():
        if value is not None and not isinstance(value, str):
            raise BadValue((Problem(name, "must be a text"),))
    text = f"{prompt or ''}{HOLE}{suffix}" if suffix else prompt
    told = [system] * bool(system) + [FILL] * (isinstance(text, str) and has_hole(text))
    return [
        *({"role": "system", "content": each} for each in told),
        {"role": "user", "content": text, "images": images},
    ]


def refuse(given: Mapping[str, bool]) -> None:
    """Refuse required parameters that Klaw does not have, given by their names: an answer without them would not be
    what was asked for. Raises BadValue."""
    wrong = [Problem(name, "is not supported here; see docs/api.md") for name, required in given.items() if required]
    if wrong:
        raise BadValue(tuple(wrong))


@attrs.define(kw_only=True)
class Exchange:
    api: Api
    user: UserId
    transcript: ClientTranscript
    options: ModelOptions
    named: transcripts.RequestedChat | None
    message_id: str
    may_come_again: bool
    """The client gave the message's id and can ask for the answer again: the turn goes on when the client goes away."""
    headers: dict[str, str] = attrs.Factory(dict)
    """For the response; they are whole when the first piece comes."""
    on_start: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Called when the answer begins, which may be long before its first piece."""
    on_thought: OnText | None = None
    """Gets the pieces of what the model thinks, if the client asks for them."""
    thought: list[str] = attrs.Factory(list)
    """The pieces, for an answer that is sent as a whole."""
    prefix: str = ""
    """Before Klaw's paths, as the client sees them."""
    finish_reason: str = "stop"
    """Why the answer ended: ``stop``, ``length``, ``content_filter`` or ``tool_calls``."""
    calls: tuple[ToolCall, ...] = ()
    """Those that the client is to carry out, after the answer."""
    turn: str | None = None
    """Answers the question; None until it has begun, and for commands."""
    _answer: str | None = None
    """The text, if what came in pieces was not all of it."""

    @classmethod
    async def read(cls, api: Api, request: HttpRequest, kind: type[R]) -> tuple[R, Self]:
        """Read a request. Raises BadValue, HttpRefusal, OperationError."""
        user, headers = api.grant(request).user, headers_of(request)
        most_text = api.services.config.http.max_body_bytes
        most = most_text + api.core.config.attachments.max_file_bytes * 4 // 3  # of a picture in base64

        def read(tree: dict[str, Any]) -> tuple[R, Self]:
            asked = FRAMES.read(tree, kind)
            options = asked.options()
            store = headers.get(STORE, "").strip().lower() != "false"
            transcript = read_transcript(asked.messages, store=store)
            texts = [transcript.instructions, *(each.content for each in (*transcript.history, transcript.question))]
            done = [call for each in transcript.rounds for call in each.calls]
            texts += [part for call in done for part in (call.id, call.name, call.arguments, call.result)]
            if sum(map(len, texts)) > most_text:
                text = f"the texts have at most {most_text} characters together (gateway.http.maxBodyBytes)"
                raise HttpRefusal(413, text)
            exchange = cls(
                api=api,
                user=user,
                transcript=transcript,
                options=options,
                named=transcripts.named_chat(headers, asked.user),
                message_id=message_id(headers, api),
                may_come_again="idempotency-key" in headers,
                prefix=prefix_of(request),
            )
            return asked, exchange

        tree = await kind.in_chat_form(await api.json(request, lambda tree: tree, most), api, user)
        try:
            return await read_input(int(headers.get("content-length", most)), read, tree)
        except BadValue as error:
            raise BadValue([attrs.evolve(each, path=kind.named(each.path)) for each in error.problems]) from None

    async def whole(self, receive: Receive, *, thinks: bool = False) -> tuple[str, Usage]:
        """Ask, and wait for the answer; ``thinks``: what the model thinks becomes ``thought``. Raises as ``run``;
        ClientDisconnect: the client has gone."""
        pieces: list[str] = []

        async def keep(into: list[str], text: str) -> None:
            into.append(text)

        if thinks:
            self.on_thought = partial(keep, self.thought)
        used = await while_connected(receive, partial(self.run, partial(keep, pieces)))
        return "".join(pieces) if self._answer is None else self._answer, used

    async def tell(
        self,
        stream: Stream,
        put: Callable[[dict[str, Any]], Awaitable[None]],
        said: Callable[[str], dict[str, Any]],
        error_of: Callable[[JSONResponse], dict[str, Any]],
    ) -> Usage | None:
        """Ask, and stream the pieces of the answer as ``said`` makes them. None: an error was told."""

        async def say(text: str) -> None:
            await put(said(text))

        self.headers = stream.headers
        try:
            return await self.run(say)
        except Exception as error:
            if not stream.begun:
                raise
            await put(error_of(of_error(error)))
            return None

    async def run(self, on_text: OnText) -> Usage:
        """Ask, and pass on the answer as it comes. Returns the tokens of it. When cancelled, the turn is stopped, as by
        ``/stop``. Raises OperationError: the model could not be asked, with its code, and the message is kept;
        KlawError: it was not stored."""
        if self.transcript.is_side_question:
            return await self._ask_alone(on_text)
        question, services = self.transcript.question, self.api.services
        files = tuple([await self._keep(each) for each in question.files])
        async with AsyncExitStack() as stack:
            async with self.api.placing[self.user]:
                place = await self._place()
                self.headers["x-klaw-chat"] = quote(place.chat)
                said = Submit(
                    id=self.message_id,
                    text=question.content,
                    files=files,
                    channel=HTTP,
                    instructions=self.transcript.instructions,
                    options=self.options,
                    came=len(self.transcript.history) + sum(1 + len(each.calls) for each in self.transcript.rounds),
                    rounds=self.transcript.rounds,
                )
                asked = await stack.enter_async_context(ask(services, self.user, place.chat, said, place.place))
            try:
                streamed = await self._pass_on(asked, on_text)
            except trio.Cancelled:
                if not self.may_come_again:
                    with trio.move_on_after(STOP_S, shield=True), suppress(KlawError):
                        await services.chats.stop(self.user, place.chat, asked.message.seq)
                raise
        outcome = asked.outcome
        assert outcome is not None
        self.turn = outcome.turn
        if outcome.status is TurnStatus.FAILED:
            raise OperationError(outcome.code or "turn_failed", outcome.text or "the answer failed")
        whole = outcome.answer.content if outcome.answer is not None else ""
        if outcome.status is TurnStatus.WAITING:
            whole = await self._hand_over(outcome.turn)
        if whole and not streamed:
            await on_text(whole)
        if outcome.answer is not None and (why := outcome.answer.metadata.get(CUT)) is not None:
            self.finish_reason = why if why in _CUTS else "length"
        if self._answer is not None:
            self._answer = whole
        turn = outcome.turn
        return usage_of(await services.chats.receipt(self.user, place.chat, turn) if turn is not None else None)

    async def _hand_over(self, turn: str | None) -> str:
        """Find the calls for which a turn waits. Returns what the model said with them."""
        waiting = await self.api.services.chats.client_calls(self.user)
        message = next(each for each in waiting if each.metadata["turn"] == turn)
        names = [tool.name for tool in self.options.tools]
        handed_over = (call for call in calls_of(message) if call.id in message.metadata[CLIENT_CALLS])
        self.calls = tuple(attrs.evolve(call, name=own_name(call.name, names)) for call in handed_over)
        self.finish_reason = "tool_calls"
        return message.content

    async def _place(self) -> transcripts.TranscriptPlace:
        """The chat, with all that came before the question. Raises BadValue, and what storing raises."""
        core, chats = self.api.core, self.api.services.chats
        if self.may_come_again and (known := await core.readers.run(messages.find, self.user, self.message_id)):
            return transcripts.TranscriptPlace(chat=name_of(known.chat))
        place = await self._found(transcripts.PREFIX + core.new_id())
        if self.transcript.history and (last := self.transcript.history[-1]).is_open:
            await self._keep_results(place.chat, last.calls)
        if place.missing:
            await chats.start(self.user, place.chat)  # or there are too many
            now = iso(core.clock.now())
            said = [
                imported.ImportedMessage(
                    id=core.new_id(),
                    role=Role(each.role),
                    content=each.content,
                    created_at=now,
                    files=tuple([await self._keep(picture) for picture in each.files]),
                )
                for each in place.missing
            ]
            origin = imported.ImportId(f"client-{now[:10].replace('-', '')}-000000-000")
            asked = imports.ImportPut(origin=origin, name=place.chat, into=place.chat, said=tuple(said))
            await imports.put(asked, Caller(user=self.user), self.api.parts)
        return place

    async def _found(self, new_chat: str) -> transcripts.TranscriptPlace:
        """Where the question goes, without what is missing there. Raises BadValue, OperationError."""
        return await transcripts.place_of(self.transcript, self.api.services.chats, self.user, self.named, new_chat)

    async def _keep_results(self, chat: str, calls: Sequence[SentCall]) -> None:
        """Results that came with a new question, which the turn that waits for them is to answer too."""
        for message in await self.api.services.chats.client_calls(self.user):
            found = transcripts.results_for(message, calls) if name_of(message.chat) == chat else None
            if found is not None:
                with suppress(CannotReplace):  # it does not wait any more
                    await self.api.services.chats.keep_results(self.user, chat, message.metadata["turn"], found)
                return

    async def _keep(self, picture: bytes) -> NamedFile:
        name = f"picture.{sniff(picture[:HEAD_BYTES]).rpartition('/')[2]}"
        kept = await self.api.services.attachments.take(self.user, name, partial(BytesIO, picture))
        return NamedFile(sha256=kept.sha256, name=name)

    async def _pass_on(self, asked: SentMessage, on_text: OnText) -> bool:
        """Returns whether anything was said."""
        streamed = False
        async for news in asked:
            if isinstance(news, TurnStarted) and asked.turn == news.turn:
                self.turn = news.turn
                self.headers["x-klaw-receipt"] = f"{self.prefix}/api/v1/receipt?turn={news.turn}"
                await self.on_start()
            elif isinstance(news, ThoughtStreamed) and news.turn == asked.turn and self.on_thought is not None:
                await self.on_thought(news.text)
            elif isinstance(news, TextStreamed) and news.turn == asked.turn:
                if not news.text:  # what came before was thinking
                    self._answer = ""
                    continue
                # After a round of tools the answer begins again.
                await on_text(f"\n\n{news.text}" if streamed and news.offset == 0 else news.text)
                streamed = True
        return streamed

    async def _ask_alone(self, on_text: OnText) -> Usage:
        """A program's own question: nothing is recalled or stored, and none of Klaw's tools is offered."""
        llm, wanted = self.api.parts.llm, self.options
        route = llm.router.route(key="/v1", thinking=wanted.thinking)
        most = min(wanted.max_tokens or MAX_SIDE_TOKENS, route.max_output_tokens)
        request = Request(
            model=route.model,
            messages=await self._about(route.context_tokens - most),
            max_tokens=most,
            temperature=wanted.temperature,
            json_schema=wanted.form,
            tools=tuple(wanted.offered().values()),
            tool_choice=wanted.forced,
            parallel_calls=wanted.parallel_calls,
            sampling=wanted.sampling,
        )
        try:
            with trio.fail_after(self.api.core.config.subagents.timeout_s):
                async with llm.slots.slot(Priority.INTERACTIVE):
                    await self.on_start()
                    done = await llm.meter().stream(route, request, lambda _delta: None)
            if not all(isinstance(parsed(call.arguments or "{}"), dict) for call in done.tool_calls):
                raise ProviderMalformed("the model called a tool with arguments that are no JSON object")
        except ProviderError as error:
            raise OperationError(error.code, error.told()) from None
        self.finish_reason, self.calls = done.finish_reason if done.finish_reason in _CUTS else "stop", done.tool_calls
        if self.calls:
            self.finish_reason = "tool_calls"
        await on_text(clean(done.text))
        return done.usage or Usage(prompt_tokens=0, completion_tokens=0)

    async def _about(self, room: int) -> tuple[ChatMessage, ...]:
        """The question behind the newest of the conversation for which there is room; a short one without any is about
        the chat that it names."""
        asked = self.transcript
        said: list[tuple[str, str]] = [(each.role, each.content) for each in asked.history]
        if not said and self.named is not None and len(asked.question.content) < MAX_SIDE_CHARS:
            rows = await self.api.services.chats.shown(chat_id(self.user, self.named.name), MAX_SIDE_ROWS)
            said = [("user" if each.role is Role.USER else "assistant", each.content) for each in rows]
        room -= tokens.estimate(asked.instructions) + tokens.estimate(asked.question.content)
        kept = [ChatMessage(role="user", content=asked.question.content)]
        behind: list[ChatMessage] = []
        for each in asked.rounds:
            calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in each.calls)
            behind.append(ChatMessage(role="assistant", content=each.text, tool_calls=calls))
            behind += [ChatMessage(role="tool", content=call.result, tool_call_id=call.id) for call in each.calls]
        room -= request_tokens(behind)
        for role, text in reversed(said):
            room -= tokens.estimate(text)
            if room < 0:
                break
            kept.append(ChatMessage(role="assistant" if role == "assistant" else "user", content=text))
        system = [ChatMessage(role="system", content=asked.instructions)] if asked.instructions else []
        return (*system, *reversed(kept), *behind)


def usage_of(record: TurnRecord | None) -> Usage:
    """The tokens of a turn, as far as they were counted."""
    used: Mapping[str, Any] = record.usage if record is not None else {}
    known = {each.name: used[each.name] for each in attrs.fields(Usage) if each.name in used}
    return Usage(**{"prompt_tokens": 0, "completion_tokens": 0} | known)
