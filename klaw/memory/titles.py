"""Titles of chats whose names Klaw made. Such a chat is called by how its first message begins, until the model of
``routing.tasks.summarization`` is asked for a better title, once, behind everybody who waits for a reply. The built-in
model is never asked: it is too small for that."""

import re
from collections import Counter
from collections.abc import Sequence

import attrs
import structlog
import trio

from klaw.actor.backoff import SLOW
from klaw.actor.clock import Clock, iso
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.config.schema import EngineConfig
from klaw.domain.events import ChatChanged, EventSink
from klaw.domain.message import MAX_TITLE, Message, Role, chat_title, is_searchable
from klaw.domain.names import NEW_CHAT, ChatId, UserId, name_of
from klaw.domain.text import clean_output, in_brief, tagged
from klaw.errors import ConfigError, InvalidValue, NoSuchChat, StorageError
from klaw.llm.errors import ProviderError
from klaw.llm.types import ChatMessage, Route
from klaw.memory.background_llm import Asker, question
from klaw.memory.summaries import asking
from klaw.store.engine import meta
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import chats, messages

ACTOR_NAME = "memory.titler"
MAX_WORDS = 10
READ_MESSAGES, READ_TOKENS = 12, 1_000
"""Of the beginning of a chat."""
ATTEMPTS = 3
"""A chat for which the model fails so often keeps the title that it has."""

_NEW_CHAT = re.compile(NEW_CHAT)

log = structlog.get_logger("klaw.titles")


def read_title(answer: str) -> str:
    """The title in a model's answer; empty if there is none that could be one."""
    line = next((each for each in clean_output(answer).splitlines() if any(map(str.isalnum, each))), "")
    text = in_brief(line, MAX_TITLE).strip(" \"'«»“”„.…")
    if len(line) > MAX_TITLE or not 1 <= len(text.split()) <= MAX_WORDS:
        return ""
    try:
        return chat_title(text)
    except InvalidValue:
        return ""


def title_prompt(said: Sequence[Message]) -> tuple[ChatMessage, ...]:
    """The question for a title of a chat that begins so."""
    return question("title", tagged("conversation", asking.split(asking.transcript(said), READ_TOKENS)[0]))


@attrs.define(kw_only=True, eq=False)
class Titler(Nudge):
    """Actor ``memory.titler``."""

    config: EngineConfig
    readers: Readers
    writer: Writer
    asker: Asker
    clock: Clock
    events: EventSink
    _failed: Counter[ChatId] = attrs.field(factory=Counter, init=False)

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=1)

    def turn_ended(self, chat: ChatId) -> None:
        """A turn of a chat has ended: it may have no title yet. Never waits."""
        if _NEW_CHAT.fullmatch(name_of(chat)):
            self.nudge()

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """Make titles until cancelled; what is being made then is given up, and made after the next start."""
        task_status.started()
        while True:
            pause = await self._make_all(vitals)
            vitals.doing("idle")
            if pause:
                await trio.sleep(pause)
            else:
                await self.wait_for_news()

    async def _make_all(self, vitals: Vitals) -> float:
        """Make the titles that are missing. Returns the seconds to wait before another attempt; 0: none is missing."""
        while (route := self._route()) and (found := await self.readers.run(chats.untitled)):
            user, chat = found
            vitals.doing("making a title")
            try:
                await self._make(user, chat, route)
            except (ProviderError, StorageError) as error:
                log.warning("no_title", error=error_class(error))
                self._failed[chat] += 1
                return SLOW.pause_s(self._failed[chat])
        return 0.0

    def _route(self) -> Route | None:
        """The model; None: there is none that can."""
        if self.config.is_built_in(self.config.routing.first("summarization")):
            return None
        try:
            return self.asker.llm.router.route(task="summarization", thinking="off")
        except ConfigError:
            return None

    async def _make(self, user: UserId, chat: ChatId, route: Route) -> None:
        as_of = await self.readers.run(meta.last_entry)
        found = await self.readers.run(messages.kept_after, chat, 0, READ_MESSAGES)
        said = [each for each in found if is_searchable(each.role, each.type)]
        title = ""
        if self._failed[chat] < ATTEMPTS and any(each.role is Role.USER and each.content for each in said):
            async with self.asker.charged("titles", user, chat) as asker:
                title = read_title((await asker.call(route, title_prompt(said))).text)
        del self._failed[chat]
        last = said[-1].seq if said else 1
        try:
            await self.writer.run(chats.set_title, user, chat, title, last, iso(self.clock.now()), as_of)
        except NoSuchChat:
            return  # it was deleted meanwhile
        if title:
            self.events.emit(ChatChanged(chat=chat, title=title))
        log.info("titled", count=int(bool(title)))
