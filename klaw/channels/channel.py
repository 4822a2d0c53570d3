"""The actor of one account of a messenger: takes what people say there, stores it, and tells each conversation what its
chat says. Nobody sends to it; ``klaw.channels.channels`` starts and stops it with the settings."""

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.failure import error_class, where
from klaw.actor.supervisor import TaskStarted, Vitals
from klaw.channels.account import ChannelAccount
from klaw.channels.conversations import Conversations
from klaw.channels.delivery import AGAIN, ALLOW, DENY, ConversationDelivery
from klaw.channels.messenger import (
    BotInvited,
    BotRemoved,
    ButtonPress,
    ChannelConversation,
    ChannelError,
    ChannelEvent,
    IncomingFile,
    IncomingMessage,
    MessageDeletion,
    NewConversationId,
    OthersCanRead,
    ReceivedElsewhere,
    TooManyRequests,
    Unreachable,
    WrongToken,
    room_of,
)
from klaw.channels.pairing import LENGTH, Stranger
from klaw.channels.wording import escaped, language_of, say
from klaw.chats.commands import SlashCommand, UnknownCommand, parse
from klaw.chats.requests import Submit
from klaw.domain import tokens
from klaw.domain.attachment import MAX_FILES, Attachment, NamedFile
from klaw.domain.events import Outcome
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import UserId, chat_id, name_of
from klaw.errors import (
    AnswerRunning,
    AttachmentRefused,
    CannotReplace,
    IdConflict,
    InvalidName,
    TooManyChats,
    TooMuchToday,
    VoiceError,
)
from klaw.operations.slash import OperationCommands
from klaw.store.kinds import channels, chats, messages
from klaw.store.kinds.channels import LinkedConversation, link_id
from klaw.store.kinds.variants.replace import Wish

OLD_S = 86_400.0
"""What is older when it arrives is stored and not answered."""
SLOWLY = Backoff(30.0, 300.0)
"""Pauses while a token is refused, or another program receives with it."""
LISTED_CHATS = 30
FETCH_TRIES = 8
"""For a file, while the service cannot be reached: some minutes."""
_CHOSEN = {Outcome.ALLOWED: "allow", Outcome.DENIED: "deny"}
_CLIENT_ID = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_NOT_STORED = (AttachmentRefused, InvalidName, TooManyChats, TooMuchToday)

_COMMANDS = OperationCommands().meanings

log = structlog.get_logger("klaw.channels")


@attrs.define(eq=False)
class Channel:
    account: ChannelAccount
    conversations: Conversations = attrs.field(init=False)
    """While it runs."""

    @property
    def linked(self) -> Sequence[ConversationDelivery]:
        """Its conversations."""
        return list(self.conversations.deliveries.values())

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self.conversations = Conversations(self.account, nursery)
                await self.conversations.start()
                task_status.started()
                await self._receive(vitals)
        finally:
            with trio.move_on_after(1, shield=True):
                await self.account.messenger.close()

    async def _receive(self, vitals: Vitals) -> None:
        position, failures = await self.account.core.readers.run(channels.position, self.account.name), 0
        while True:
            vitals.doing("waiting for messages" if self.account.problem is None else "waiting to try again")
            try:
                if self.account.bot is None:
                    self.account.bot = await self.account.messenger.open()
                    await self.account.messenger.show_commands(await self.account.core.files.run(self.account.menu))
                batch = await self.account.messenger.receive(position)
                self.account.problem, failures = None, 0
                vitals.doing("taking messages")
                await self._take_all(batch.events)
                if batch.position != position and (batch.events or position is None):
                    made = self.account.name, batch.position, self.account.now()
                    await self.conversations.surely(partial(self.account.core.writer.run, channels.set_position, *made))
                position = batch.position
            except TooManyRequests as error:
                await trio.sleep(error.after_s)
            except ChannelError as error:
                failures += 1
                self.account.trouble(error)
                refused = isinstance(error, WrongToken | ReceivedElsewhere)
                if refused:
                    self.account.bot = None
                await trio.sleep((SLOWLY if refused else AGAIN).pause_s(failures))

    async def _take_all(self, events: Sequence[ChannelEvent]) -> None:
        """Carry out what came: in each conversation in order, and beside each other."""
        by_conversation: dict[str, list[ChannelEvent]] = {}
        for event in events:
            conversation = event.conversation
            key = conversation.id if isinstance(conversation, ChannelConversation) else conversation
            by_conversation.setdefault(key, []).append(event)
        async with trio.open_nursery() as nursery:
            for of_one in by_conversation.values():
                nursery.start_soon(self._take_in_order, of_one)

    async def _take_in_order(self, events: Sequence[ChannelEvent]) -> None:
        for event in events:
            try:
                await self.conversations.surely(partial(self._take, event))
            except Exception as error:  # noqa: BLE001  one message that fails must not keep all others back
                log.error("event_not_taken", name=self.account.name, error=error_class(error), where=where(error))

    async def _take(self, event: ChannelEvent) -> None:
        match event:
            case IncomingMessage():
                await self._incoming(event)
            case ButtonPress():
                await self._pressed(event)
            case BotInvited():
                await self._joined(event)
            case OthersCanRead(conversation=ChannelConversation(id=room)):  # a thread's private words are not for them
                await self.conversations.unlink(lambda link: not link.is_group and room_of(link.conversation) == room)
            case BotRemoved(conversation=conversation):
                if (there := self.conversations.deliveries.get(conversation)) is not None:
                    there.close()
            case NewConversationId(conversation=conversation, to=to):
                if (there := self.conversations.deliveries.get(conversation)) is not None:
                    await self.conversations.move(there, to)
            case MessageDeletion():
                await self._removed(event)

    # -- what people say ---------------------------------------------------------------------------------------------

    async def _incoming(self, event: IncomingMessage) -> None:
        there = await self.conversations.of(event.conversation, event.sender)
        if there is None:
            await self._stranger(event)
            return
        there.reopen()
        text = event.text.strip()
        if text.partition(" ")[0] == "/start":
            await self._say(event, "paired")
        elif text.partition(" ")[0] == "/chat":
            await self._chat(there, event, text.partition(" ")[2].strip())
        elif event.addressed or self.account.config.listen:
            await self._say_in_chat(there, event, text)

    async def _say_in_chat(self, there: ConversationDelivery, event: IncomingMessage, text: str) -> None:
        link, spoken, unheard = there.link, False, False
        files: list[NamedFile] = []
        for each in event.files[:MAX_FILES]:
            try:
                kept = await self._kept(link.user, each)
                files.append(NamedFile(sha256=kept.sha256, name=kept.name))
                if each.voice:
                    sound = await self.account.core.attachments.read(link.user, kept.sha256)
                    words = await self.account.voice.transcribe(sound, each.name, each.type, user=link.user)
                    text, spoken = f"{text}\n\n{words}".strip(), True
            except VoiceError as error:
                await self._say(event, "not_heard", why=error)
                unheard = not text
            except (AttachmentRefused, ChannelError) as error:
                text += "\n" + say("no_file", link.language, name=each.name, why=error)
        if not text.strip() and not files:
            return
        answered = event.addressed and not unheard and self.account.core.clock.now() - event.at < OLD_S
        is_command = isinstance(parse(text, _COMMANDS), SlashCommand | UnknownCommand) and not files
        if link.is_group and not is_command:
            text = f"{' '.join(event.sender.name.split())[:64] or '?'}: {text}"
        if is_command and not answered:
            return
        if event.edits is not None:
            await self._edited(there, event, text)
            return
        channel, at_id = self.account.kind if answered else self.account.heard, self._message_id(event.id)

        async def send() -> None:
            with suppress(IdConflict):
                message = (at_id, text, tuple(files), channel)
                await self.account.chats.send(link.user, there.link.chat, *message, transcribed=spoken)

        try:
            await self.conversations.surely(send)
        except _NOT_STORED as error:
            await self._say(event, "not_stored", why=error)

    async def _kept(self, user: UserId, file: IncomingFile) -> Attachment:
        """Fetch a file and keep it. Raises AttachmentRefused, ChannelError, StorageError."""
        failures = 0
        while True:
            try:
                return await self.account.core.attachments.keep(user, file.name, self.account.messenger.download(file))
            except Unreachable as error:
                failures += 1
                if failures == FETCH_TRIES:
                    raise
                await trio.sleep(error.after_s if isinstance(error, TooManyRequests) else AGAIN.pause_s(failures))

    async def _edited(self, there: ConversationDelivery, event: IncomingMessage, text: str) -> None:
        """The last question is answered anew; what was said earlier is corrected by a message that nobody answers."""
        link, read = there.link, self.account.core.readers.run
        old = await read(messages.find, link.user, self._message_id(event.edits or ""))
        if old is None or old.content == text:
            return
        newest = await read(messages.before, chat_id(link.user, link.chat), 1 << 60, 50)
        said = [each for each in newest if each.role is Role.USER and each.channel == self.account.kind]
        if old.chat == chat_id(link.user, link.chat) and said and said[-1].id == old.id:
            await self.account.chats.stop(link.user, link.chat)
            submit = Submit(id=self._message_id(event.id), text=text, channel=self.account.kind)
            with suppress(CannotReplace, AnswerRunning, IdConflict):
                await self.account.chats.vary(link.user, link.chat, Wish(which=old.seq, edits=True), submit)
                return

        async def send() -> None:
            with suppress(IdConflict):
                corrected = say("edited", link.language, text=text)
                await self.account.chats.send(
                    link.user, link.chat, self._message_id(event.id), corrected, (), self.account.heard
                )

        await self.conversations.surely(send)

    async def _removed(self, event: MessageDeletion) -> None:
        there = self.conversations.deliveries.get(event.conversation.id)
        if there is None:
            return
        old = await self.account.core.readers.run(messages.find, there.link.user, self._message_id(event.id))
        if old is not None and old.content:
            what = f"#{old.seq}" if old.chat == there.chat else f"{name_of(old.chat)}#{old.seq}"
            text = say("deleted", there.link.language, what=what)
            await self.conversations.post(event.conversation.id, text, f"{there.link.id}-r{old.seq}")

    async def _chat(self, there: ConversationDelivery, event: IncomingMessage, wanted: str) -> None:
        link = there.link
        if not wanted:
            listed = await self.account.core.readers.run(chats.listed, link.user, LISTED_CHATS)
            names = [f"- {escaped(each.name)}{f' — {escaped(each.title)}' if each.title else ''}" for each in listed]
            text = say("chats", link.language, chat=escaped(link.chat)) + "\n\n" + "\n".join(names)
            await self.conversations.post(link.conversation, text, f"{link.id}-{event.id}")
            return
        try:
            name = chat_id(link.user, wanted).partition(":")[2]
        except InvalidName as error:
            await self._say(event, "not_stored", why=error)
            return
        await self.conversations.go(there, name)
        await self._say(event, "now_in", chat=escaped(name))

    # -- questions ---------------------------------------------------------------------------------------------------

    async def _pressed(self, event: ButtonPress) -> None:
        there = self.conversations.deliveries.get(event.conversation.id)
        choice, _, asked = event.data.partition(":")
        if there is None or f"{choice}:" not in (ALLOW, DENY):
            return
        if not there.link.is_group and there.link.sender != event.sender.id:
            return
        approval, language = self.account.approvals.find(there.link.user, asked), there.link.language
        outcome = None
        if approval is not None and approval.chat == there.chat:
            there.answered_by(asked, event.sender.name)
            outcome = self.account.approvals.answer(approval, allow=f"{choice}:" == ALLOW)
        text = say("withdrawn" if outcome is None else _CHOSEN[outcome], language)
        with suppress(ChannelError):
            await self.account.messenger.confirm(event, text)
            if outcome is None:
                (part,) = self.account.messenger.render(text)
                await self.account.messenger.edit(
                    event.conversation.id, event.message, part, f"{there.link.id}-{asked}-w"
                )

    # -- who may -----------------------------------------------------------------------------------------------------

    async def _stranger(self, event: IncomingMessage) -> None:
        """Tell somebody unknown, or a group, a code, once; or take the code of an invitation."""
        words = event.text.split()
        code = words[-1] if words and len(words) <= 2 and len(words[-1]) == LENGTH else ""
        user = self.account.codes.invited(code, self.account.name) if code and not event.conversation.group else None
        if user is not None:
            await self._greet(await self.conversations.link(user, event.conversation, event.sender))
        elif event.addressed:
            stranger = Stranger(account=self.account.name, conversation=event.conversation, sender=event.sender)
            if (made := self.account.codes.ask(stranger)) is not None:
                await self._say(event, "group_code" if event.conversation.group else "code", code=made)

    async def pair(self, stranger: Stranger, user: UserId) -> LinkedConversation:
        """Let somebody who asked for a code, or a group, write from now on, and tell them."""
        there = await self.conversations.link(user, stranger.conversation, stranger.sender)
        self.account.codes.close(stranger)
        await self._greet(there)
        return there.link

    async def _greet(self, there: ConversationDelivery) -> None:
        """The first message of the chat, so that tasks can bring their results there."""
        text = say("group_paired" if there.link.is_group else "paired", there.link.language)
        new = NewMessage(
            id=self.account.core.new_id(),
            chat=there.chat,
            user=there.link.user,
            channel=self.account.kind,
            role=Role.SYSTEM,
            type=MessageKind.COMMAND,
            content=text,
            tokens=tokens.estimate(text),
            created_at=self.account.now(),
        )
        await self.conversations.surely(lambda: self.account.core.writer.run(messages.append, [new]))

    async def _joined(self, event: BotInvited) -> None:
        """Somebody invites Klaw. A person may, to be told a code; into a group only who is known already."""
        conversation, there = event.conversation, self.conversations.deliveries.get(event.conversation.id)
        with suppress(ChannelError):
            if conversation.group and there is None and not self.conversations.knows(event.sender):
                await self.account.messenger.leave(conversation.id)
                return
            await self.account.messenger.join(conversation.id)
            if event.unreadable:
                language = language_of(event.sender.language, event.sender.name, conversation.title)
                key = f"{link_id(self.account.name, conversation.id)}-x"
                await self.conversations.post(conversation.id, say("encrypted", language), key)

    async def _say(self, event: IncomingMessage, what: str, **values: object) -> None:
        language = language_of(event.sender.language, event.sender.name, event.text)
        key = f"{self._message_id(event.id)}-{what}"
        await self.conversations.post(event.conversation.id, say(what, language, **values), key)

    def _message_id(self, of: str) -> str:
        """The id in Klaw of a message of the messenger: the same for a repetition."""
        if not _CLIENT_ID.fullmatch(of):
            of = hashlib.sha256(of.encode()).hexdigest()[:32]
        return f"{self.account.name}:{of}"
