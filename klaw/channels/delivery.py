"""Tells one conversation of a messenger what its chat says: in order, each message once as far as the service allows.

The cursor (``LinkedConversation.delivered``, ``parts``, ``draft``) is stored after each message of the messenger, so a
restart goes on behind it. Where the service recognises repeated keys nothing is doubled; else the one message that was
sent before a kill, and not noted yet, is sent again."""

import datetime as dt
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.failure import error_class
from klaw.channels.account import ChannelAccount
from klaw.channels.messenger import (
    Button,
    ConversationClosed,
    ConversationMoved,
    Part,
    RefusedByMessenger,
    TooManyRequests,
    Unreachable,
)
from klaw.channels.wording import escaped, say, translated
from klaw.domain.attachment import TRANSCRIBED, Attachment, files_of
from klaw.domain.events import (
    Approval,
    ApprovalAsked,
    ApprovalEnded,
    ChatEvent,
    HealthChanged,
    Outcome,
    TextStreamed,
    TurnEnded,
    TurnStarted,
)
from klaw.domain.message import Message, MessageKind, Role, TurnStatus
from klaw.domain.names import ChatId, chat_id
from klaw.domain.task import NOTICE_ORIGIN
from klaw.errors import AttachmentRefused, KlawError, VoiceError
from klaw.gateway.answers import StoredOnce
from klaw.store.kinds import channels, tasks
from klaw.store.kinds.channels import LinkedConversation

PAGE = 50
WORKING_S = 4.0
"""Messengers show for so long that somebody is writing."""
AGAIN = Backoff(1.0, 45.0)
GROWS = " …"
LONG_CHARS = 4_000
"""Of a longer text: it is made ready in a thread, and what is shown of it while it grows ends there."""
ALLOW, DENY = "allow:", "deny:"

log = structlog.get_logger("klaw.channels")


@attrs.define
class _Question:
    approval: Approval
    message: str = ""
    """The messenger's id; empty: it is not shown yet."""
    outcome: Outcome | None = None
    who: str = ""


class ConversationDelivery:
    """A ``hub.Subscriber`` for one conversation."""

    def __init__(
        self,
        account: ChannelAccount,
        link: LinkedConversation,
        move: Callable[["ConversationDelivery", str], Awaitable[None]],
    ) -> None:
        self._account, self.link, self._move = account, link, move
        self._news = trio.Event()
        self._seen = link.delivered
        """The last ``seq`` that was looked at."""
        self._growing: str | None = None
        """The turn whose answer grows."""
        self._shown, self._edits, self._edited_at = "", 0, 0.0
        self._works = False
        self._questions: dict[str, _Question] = {}
        self._ended: TurnEnded | None = None
        """A turn that ended without an answer."""
        self._closed = False
        self._changing = trio.Lock()
        self.scope = trio.CancelScope()

    @property
    def chat(self) -> ChatId:
        return chat_id(self.link.user, self.link.chat)

    # -- what the hub tells; none of these waits ---------------------------------------------------------------------

    def stored(self, stored: StoredOnce) -> None:
        del stored  # it is read from the store, in its place
        self._news.set()

    def happened(self, event: ChatEvent) -> None:
        match event:
            case TurnStarted():
                self._works = True
            case TextStreamed(turn=turn):
                if turn != self._growing:  # an answer that is there at once comes whole
                    self._growing, self._edited_at = turn, trio.current_time()
            case TurnEnded():
                self._works, self._growing = False, None
                self._ended = None if event.status is TurnStatus.DONE else event
            case ApprovalAsked(approval=approval):
                self._questions[approval.id] = _Question(approval)
            case ApprovalEnded(id=asked, outcome=outcome) if asked in self._questions:
                self._questions[asked].outcome = outcome
            case _:
                return
        self._news.set()

    def noticed(self, event: HealthChanged) -> None:
        pass

    # -- what the channel tells --------------------------------------------------------------------------------------

    def reopen(self) -> None:
        """The person writes again: nothing keeps messages back."""
        self._closed = False
        self._news.set()

    def close(self) -> None:
        """Nothing can be sent there for the time being."""
        self._closed = True

    def answered_by(self, asked: str, who: str) -> None:
        if asked in self._questions:
            self._questions[asked].who = who

    async def change(self, of: ChatId, **fields: Any) -> None:
        """Store another state of the conversation, unless it has gone on to another chat than ``of``. Raises
        StorageError."""
        async with self._changing:
            if of == self.chat:
                link = attrs.evolve(self.link, **fields)
                await self._account.core.writer.run(channels.put_link, link, self._account.now())
                self.link = link

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        with self.scope:
            hub, watched, failures = self._account.hub, self.chat, 0
            hub.watch(self, watched)
            try:
                while True:
                    if watched != self.chat:  # the person went to another chat
                        hub.leave(self)
                        watched, self._seen = self.chat, self.link.delivered
                        hub.watch(self, watched)
                    self._news = trio.Event()
                    pause_s = await self._tell_all()
                    failures = failures + 1 if pause_s is None else 0
                    if pause_s is None:  # a failure is not over because something else is to be told
                        await trio.sleep(AGAIN.pause_s(failures))
                        continue
                    with trio.move_on_after(pause_s):
                        await self._news.wait()
            finally:
                hub.leave(self)

    async def _tell_all(self) -> float | None:
        """Tell what there is. Returns after how many seconds there may be something to do without news; None: it
        failed and is to be tried again."""
        if self._closed:
            return float("inf")
        try:
            waits_s = await self._tell_stored()
            await self._tell_questions()
            await self._tell_end()
            return min(waits_s, await self._tell_progress())
        except TooManyRequests as error:
            await trio.sleep(error.after_s)
            return 0.0
        except ConversationClosed:
            self._closed = True
            log.info("conversation_closed", name=self._account.name)
            return float("inf")
        except ConversationMoved as error:
            await self._move(self, error.to)
            return 0.0
        except Unreachable as error:
            self._account.trouble(error)
            return None
        except KlawError as error:
            log.warning("not_delivered", name=self._account.name, error=error_class(error))
            return None

    async def _tell_stored(self) -> float:
        """Deliver all stored messages. Returns how long a held one is to wait."""
        while found := await self._account.chats.after(self.chat, self._seen, PAGE):
            for place, message in enumerate(found):
                newer = place + 1 < len(found)
                if not newer and (held_s := await self._held_s(message)):
                    return held_s
                await self._deliver(message)
                if message.chat != self.chat:
                    return 0.0
                self._seen = message.seq
        return float("inf")

    async def _deliver(self, message: Message) -> None:
        text = self._text_of(message)
        files = files_of(message.metadata) if message.role is not Role.USER else ()
        parts = [*(await self._rendered(text) if text else ()), *files]
        for number in range(self.link.parts, len(parts)):
            key, over = f"{self.link.id}-{message.seq}-{number}", number + 1 == len(parts)
            try:
                await self._put(parts[number], key, self.link.draft if number == 0 else "")
            except (AttachmentRefused, RefusedByMessenger) as error:
                log.warning("message_refused", name=self._account.name, error=error_class(error))
                name, chat = self._account.kind.capitalize(), self.link.chat
                await self._put_all(say("refused", self.link.language, name=name, chat=chat), f"{key}-r")
            done = {"delivered": message.seq, "parts": 0} if over else {"parts": number + 1}
            await self.change(message.chat, **done, draft="")
        if parts and message.role is Role.ASSISTANT:
            self._shown = ""
            await self._speak(message)

    async def _speak(self, answer: Message) -> None:
        """Say an answer aloud too, where a voice message is answered."""
        account, link = self._account, self.link
        if not account.config.speak or not account.voice.speaks or answer.type is not MessageKind.TEXT:
            return
        before = await account.chats.before(self.chat, answer.seq, PAGE)
        asked = next((each for each in reversed(before) if each.role is Role.USER), None)
        if asked is None or not asked.metadata.get(TRANSCRIBED):
            return
        try:
            sound, kind = await account.voice.speak(answer.content, user=link.user)
        except VoiceError as error:
            log.warning("not_spoken", name=account.name, code=error.code)
            return
        name = f"{account.bot.name.strip('@') if account.bot is not None else 'klaw'}.ogg"
        with suppress(RefusedByMessenger):
            await account.messenger.upload(
                link.conversation, name, kind, sound, f"{link.id}-{answer.seq}-v", voice=True
            )

    async def _rendered(self, text: str) -> list[Part]:
        """``Messenger.render``, of a long text in a thread."""
        render = self._account.messenger.render
        return render(text) if len(text) <= LONG_CHARS else await self._account.core.files.run(render, text)

    async def _put(self, part: Part | Attachment, key: str, draft: str = "") -> None:
        conversation = self.link.conversation
        if isinstance(part, Attachment):
            data = await self._account.core.attachments.read(self.link.user, part.sha256)
            await self._account.messenger.upload(conversation, part.name, part.type, data, key)
            return
        if draft:
            with suppress(RefusedByMessenger):  # it is gone, or too old
                await self._account.messenger.edit(conversation, draft, part, key)
                return
        await self._account.messenger.post(conversation, part, key)

    async def _put_all(self, text: str, key: str) -> None:
        with suppress(RefusedByMessenger):
            for number, part in enumerate(self._account.messenger.render(text)):
                await self._account.messenger.post(self.link.conversation, part, f"{key}-{number}")

    def _text_of(self, message: Message) -> str:
        """What the conversation is told of a message, as Markdown; empty for nothing."""
        if message.role is Role.USER:
            here = message.channel in (self._account.kind, self._account.heard) or message.type is MessageKind.COMMAND
            return "" if here else "\n".join(f"> {line}" for line in message.content.splitlines())
        of_tools = message.role is Role.TOOL or message.type is MessageKind.TOOL_RESULT
        if of_tools or message.type is MessageKind.SESSION_BREAK:
            return ""
        is_own = message.type is MessageKind.COMMAND
        return translated(message.content, self.link.language) if is_own else message.content

    async def _held_s(self, message: Message) -> float:
        """How long a message is to wait for the end of the quiet hours; 0: not at all."""
        quiet = self._account.core.config.channels.quiet
        is_notice = message.metadata.get("origin") == NOTICE_ORIGIN
        if quiet is None or not (is_notice or message.type is MessageKind.SCHEDULED):
            return 0.0
        read = self._account.core.readers.run
        task = await read(tasks.get, self.link.user, str(message.metadata.get("task", "")))
        if task is not None and task.reminder:
            return 0.0
        zone = await read(tasks.days_zone, self.link.user)
        return left_of(quiet, dt.datetime.fromtimestamp(self._account.core.clock.now(), zone))

    # -- answers while they grow, questions, failures ----------------------------------------------------------------

    async def _tell_progress(self) -> float:
        """Show that an answer is being written, and how far it is. Returns when to look again."""
        chat = self.chat
        running = self._account.hub.running(chat)
        if not self._works or running is None:
            return float("inf")
        if running.turn != self._growing or not running.text or running.text == self._shown:
            await self._account.messenger.working(self.link.conversation)
            return WORKING_S
        wait_s = self._edited_at + self._account.messenger.limits.edit_pause_s - trio.current_time()
        if wait_s > 0:
            return wait_s
        text, self._edits = running.text, self._edits + 1
        parts = self._account.messenger.render(text[:LONG_CHARS] + GROWS)
        if parts:
            with suppress(RefusedByMessenger):
                if self.link.draft:
                    key = f"{self.link.id}-{running.turn[:12]}-d{self._edits}"
                    await self._account.messenger.edit(self.link.conversation, self.link.draft, parts[0], key)
                else:  # another turn answers after a kill: one that was sent, and not noted, is found by this key
                    key = f"{self.link.id}-{self._seen}-d"
                    made = await self._account.messenger.post(self.link.conversation, parts[0], key)
                    await self.change(chat, draft=made)
        self._shown, self._edited_at = text, trio.current_time()
        return self._account.messenger.limits.edit_pause_s

    async def _tell_questions(self) -> None:
        for each in list(self._questions.values()):
            asked, language = each.approval, self.link.language
            try:
                if not each.message and each.outcome is None:
                    buttons = [Button(label=say(what, language), data=data + asked.id) for what, data in _CHOICES]
                    each.message = await self._ask(each, buttons, f"{self.link.id}-{asked.id}")
                elif each.message and each.outcome is not None:
                    when = dt.datetime.fromtimestamp(self._account.core.clock.now()).astimezone()
                    who = escaped(each.who) if each.who else say("elsewhere", language)
                    end = say(each.outcome.value, language, who=who, when=f"{when:%H:%M}")
                    await self._ask(each, (), f"{self.link.id}-{asked.id}-e", f"\n\n{end}")
            except RefusedByMessenger as error:
                log.warning("question_not_shown", name=self._account.name, error=error_class(error))
                self._questions.pop(asked.id)
            if each.outcome is not None:
                self._questions.pop(asked.id, None)

    async def _ask(self, question: _Question, buttons: Sequence[Button], key: str, end: str = "") -> str:
        asked, messenger = question.approval, self._account.messenger
        fence = "`" * (1 + max(2, *map(len, re.findall("`+", asked.what)), 2))  # nothing in it ends the code
        text = say("asks", self.link.language, tool=asked.tool, what=asked.what, fence=fence) + end
        *before, last = messenger.render(text)
        conversation = self.link.conversation
        if question.message:
            await messenger.edit(conversation, question.message, last, key)
            return question.message
        for number, part in enumerate(before):
            await messenger.post(conversation, part, f"{key}-{number}")
        return await messenger.post(conversation, last, key, buttons=buttons)

    async def _tell_end(self) -> None:
        ended, messenger, conversation = self._ended, self._account.messenger, self.link.conversation
        if ended is None:
            return
        key = f"{self.link.id}-{ended.turn}"
        if self.link.draft:  # no more will come of it
            for part in messenger.render(self._shown)[:1]:
                with suppress(RefusedByMessenger):
                    await messenger.edit(conversation, self.link.draft, part, f"{key}-e")
            await self.change(self.chat, draft="")
        if ended.status is TurnStatus.FAILED:
            await self._put_all(say("failed", self.link.language, why=escaped(ended.text or ended.code or "")), key)
        self._shown, self._ended = "", None


_CHOICES = (("allow", ALLOW), ("deny", DENY))


def left_of(quiet: str, now: dt.datetime) -> float:
    """Seconds until quiet hours such as ``22:00-07:00`` are over; 0 outside of them."""
    begin, end = (dt.time.fromisoformat(each) for each in quiet.split("-"))
    time = now.time().replace(tzinfo=None)
    inside = begin <= time < end if begin <= end else time >= begin or time < end
    if not inside:
        return 0.0
    until = now.replace(hour=end.hour, minute=end.minute, second=0, microsecond=0)
    return ((until if until > now else until + dt.timedelta(days=1)) - now).total_seconds()
