"""What the faces for other protocols share: a transcript becomes a message of a chat, or a question of the program
itself to the model alone, and the answer comes in pieces.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote

import attrs
import trio
from starlette.types import Receive

from klaw.api.asker import Api, message_id
from klaw.api.conversation import Asked, ask
from klaw.api.streams import while_connected
from klaw.api.transcript import Said, Transcript, chat_of, named_chat, read_transcript
from klaw.domain.attachment import HEAD_BYTES, Named, sniff
from klaw.domain.events import TextStreamed, TurnStarted
from klaw.domain.message import CUT
from klaw.domain.names import UserId
from klaw.domain.text import clean
from klaw.domain.turn import TurnStatus
from klaw.errors import HttpRefusal
from klaw.llm.client import Llm
from klaw.llm.errors import ProviderError
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Request, Usage
from klaw.operations.operation import OperationError
from klaw.store.attachments import DISCARD_S

MODEL = "klaw"
"""The only model that others see: which one answers is decided here."""
_CUTS = ("length", "content_filter")
MAX_SIDE_TOKENS = 400
"""Most tokens of an answer to a program's own question."""

OnText: TypeAlias = Callable[[str], Awaitable[None]]


@attrs.define(kw_only=True)
class Exchange:
    """A question and its answer. ``headers`` are for the response; they are whole when the first piece comes."""

    api: Api
    user: UserId
    transcript: Transcript
    chat: str | None
    """None: it is found by the transcript."""
    message_id: str
    headers: dict[str, str] = attrs.Factory(dict)
    finish_reason: str = "stop"
    """Of the answer: ``stop``, ``length`` or ``content_filter``."""
    _answer: str | None = None
    """The text, if what came in pieces was not all of it."""

    @classmethod
    def read(
        cls, api: Api, user: UserId, headers: Mapping[str, str], messages: list[Said], named: str | None = None
    ) -> "Exchange":
        """Of a request. ``named``: what its body says of the chat. Raises BadValue, HttpRefusal."""
        most = api.services.config.http.max_body_bytes  # a longer body is longer by its pictures
        if sum(len(each.content) for each in messages) > most:
            raise HttpRefusal(413, f"the texts have at most {most} characters together (gateway.http.maxBodyBytes)")
        return cls(
            api=api,
            user=user,
            transcript=read_transcript(messages),
            chat=named_chat(headers, named),
            message_id=message_id(headers, api),
        )

    async def whole(self, receive: Receive) -> tuple[str, Usage]:
        """Ask, and wait for the answer. Raises as ``run``; ClientDisconnect: the client has gone."""
        pieces: list[str] = []

        async def keep(text: str) -> None:
            pieces.append(text)

        used = await while_connected(receive, partial(self.run, keep))
        return "".join(pieces) if self._answer is None else self._answer, used

    async def run(self, on_text: OnText) -> Usage:
        """Ask, and pass on the answer as it comes. Returns the tokens of it.

        Raises:
            OperationError: the model could not be asked, with its code; the message is kept.
            KlawError: the message was not stored.
        """
        if self.transcript.is_side_question:
            return await self._ask_alone(on_text)
        services, core = self.api.services, self.api.core
        if self.chat is None:
            self.chat = await chat_of(self.transcript, services.chats, self.user, core.new_id())
        self.headers["x-klaw-chat"] = quote(self.chat)
        text, instructions = self.transcript.text, self.transcript.instructions
        files = tuple([await self._keep(each) for each in self.transcript.pictures])
        async with ask(
            services.chats, services.hub, self.user, self.chat, self.message_id, text, instructions, files
        ) as asked:
            streamed = await self._pass_on(asked, on_text)
        outcome = asked.outcome
        assert outcome is not None
        if outcome.status is TurnStatus.FAILED:
            raise OperationError(outcome.code or "turn_failed", outcome.text or "the answer failed")
        whole = outcome.answer.content if outcome.answer is not None else ""
        if whole and not streamed:
            await on_text(whole)
        if outcome.answer is not None and (why := outcome.answer.metadata.get(CUT)) is not None:
            self.finish_reason = why if why in _CUTS else "length"
        if self._answer is not None:
            self._answer = whole
        return await self._usage(self.chat, outcome.turn)

    async def _keep(self, picture: bytes) -> Named:
        """Raises AttachmentRefused, StorageFull."""
        attachments = self.api.services.attachments
        name = f"picture.{sniff(picture[:HEAD_BYTES]).rpartition('/')[2]}"
        draft = await attachments.begin(self.user, name)
        try:
            await attachments.add(draft, picture)
            return Named(sha256=(await attachments.finish(draft)).sha256, name=name)
        finally:
            with trio.move_on_after(DISCARD_S, shield=True):
                await attachments.discard(draft)

    async def _pass_on(self, asked: Asked, on_text: OnText) -> bool:
        """Returns whether anything was said."""
        streamed = False
        async for news in asked:
            if isinstance(news, TurnStarted) and asked.turn == news.turn and self.chat:
                self.headers["x-klaw-receipt"] = f"/api/v1/chats/{quote(self.chat)}/receipt?turn={news.turn}"
            elif isinstance(news, TextStreamed) and news.turn == asked.turn:
                if not news.text:  # what came before was thinking
                    self._answer = ""
                    continue
                # After a round of tools the answer begins again.
                await on_text(f"\n\n{news.text}" if streamed and news.offset == 0 else news.text)
                streamed = True
        return streamed

    async def _usage(self, chat: str, turn: str | None) -> Usage:
        record = await self.api.services.chats.receipt(self.user, chat, turn) if turn is not None else None
        used: Mapping[str, Any] = record.usage if record is not None else {}
        prompt, made = used.get("prompt_tokens", 0), used.get("completion_tokens", 0)
        return Usage(prompt_tokens=prompt, completion_tokens=made)

    async def _ask_alone(self, on_text: OnText) -> Usage:
        """A program's own question: nothing is recalled, no tools, nothing is stored."""
        llm: Llm = self.api.parts["llm"]
        route, asked = llm.router.route(key="/v1"), self.transcript
        system = (ChatMessage(role="system", content=asked.instructions),) if asked.instructions else ()
        messages = (*system, ChatMessage(role="user", content=asked.text))
        most = min(MAX_SIDE_TOKENS, route.max_output_tokens)
        request = Request(model=route.model, messages=messages, max_tokens=most)
        try:
            with trio.fail_after(self.api.core.config.subagents.timeout_s):
                async with llm.slots.slot(Priority.INTERACTIVE):
                    done = await llm.meter().stream(route, request, lambda _delta: None)
        except ProviderError as error:
            raise OperationError(error.code, error.told()) from None
        self.finish_reason = done.finish_reason if done.finish_reason in _CUTS else "stop"
        await on_text(clean(done.text))
        return done.usage or Usage(prompt_tokens=0, completion_tokens=0)
