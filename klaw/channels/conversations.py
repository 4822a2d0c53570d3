"""The conversations of one account: who may talk there, as which user, and in which chat."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.failure import error_class
from klaw.channels.account import ChannelAccount
from klaw.channels.delivery import AGAIN, ConversationDelivery
from klaw.channels.messenger import (
    ChannelConversation,
    ChannelError,
    ConversationMoved,
    Sender,
    TooManyRequests,
    Unreachable,
    room_of,
)
from klaw.channels.wording import language_of, say
from klaw.domain.imported import name_for, numbered
from klaw.domain.names import GROUP, UserId, chat_id
from klaw.errors import ActorStopped, ChatBusy, StorageError
from klaw.store.kinds import channels, messages
from klaw.store.kinds.channels import LinkedConversation, link_id

SAY_TRIES = 5

log = structlog.get_logger("klaw.channels")


@attrs.define(eq=False)
class Conversations:
    """Starts a ``ConversationDelivery`` for each conversation that is linked."""

    _account: ChannelAccount
    _nursery: trio.Nursery
    deliveries: dict[str, ConversationDelivery] = attrs.field(factory=dict, init=False)
    """By the messenger's id of the conversation."""
    _linking: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def start(self) -> None:
        for link in await self._account.core.readers.run(channels.links, self._account.name):
            self._deliver(link)

    def knows(self, sender: Sender) -> bool:
        return any(each.link.sender == sender.id for each in self.deliveries.values())

    async def of(self, conversation: ChannelConversation, sender: Sender) -> ConversationDelivery | None:
        """Where something was said; None: nobody has allowed it. A new thread of a group, or a new conversation of a
        person, who may write already, is linked to a chat of its own."""
        there, room = self.deliveries.get(conversation.id), room_of(conversation.id)
        if there is not None and there.link.is_group == conversation.group:
            return there if there.link.is_group or there.link.sender == sender.id else None
        if there is not None:
            await self.unlink(lambda link: room_of(link.conversation) == room)
            return None
        async with self._linking:
            if (there := self.deliveries.get(conversation.id)) is not None:
                return there
            for each in list(self.deliveries.values()):
                same_room = each.link.is_group and room_of(each.link.conversation) == room
                if same_room if conversation.group else each.link.sender == sender.id:
                    return await self._link(each.link.user, conversation, sender)
        return None

    def group_user(self, conversation: ChannelConversation) -> UserId:
        """The user that a group is."""
        return UserId(GROUP + link_id(self._account.name, room_of(conversation.id)))

    async def link(self, user: UserId, conversation: ChannelConversation, sender: Sender) -> ConversationDelivery:
        """Let a user talk in a conversation, from now on."""
        async with self._linking:
            return await self._link(user, conversation, sender)

    async def _link(self, user: UserId, conversation: ChannelConversation, sender: Sender) -> ConversationDelivery:
        name, old = self._account.name, self.deliveries.get(conversation.id)
        if old is not None:
            self._end(old)
        taken = {each.link.chat for each in self.deliveries.values() if each.link.user == user}
        thread = " " in conversation.id and conversation.title
        base = name_for(conversation.title, name) if thread else name.capitalize()
        chat = next(each for number in range(1, 10_000) if (each := numbered(base, number)) not in taken)
        now = self._account.now()
        link = LinkedConversation(
            user=user,
            id=link_id(name, conversation.id),
            account=name,
            conversation=conversation.id,
            sender="" if conversation.group else sender.id,
            title=conversation.title if conversation.group else sender.name,
            language=language_of(sender.language, conversation.title, sender.name),
            chat=chat,
            delivered=await self.head(user, chat),
            parts=0,
            draft="",
            created_at=now,
        )
        await self.surely(lambda: self._account.core.writer.run(channels.put_link, link, now))
        return self._deliver(link)

    async def unlink(self, which: Callable[[LinkedConversation], bool]) -> list[LinkedConversation]:
        """End conversations, and tell them. Raises StorageError: none has ended."""
        gone = [each for each in self.deliveries.values() if which(each.link)]
        if not gone:
            return []
        now = self._account.now()
        await self._account.core.writer.run(channels.remove_links, [each.link for each in gone], now)
        for each in gone:
            self._end(each)
            await self.post(each.link.conversation, say("unpaired", each.link.language), f"{each.link.id}-{now}")
        return [each.link for each in gone]

    async def move(self, there: ConversationDelivery, to: str) -> None:
        """A conversation has another id from now on."""
        link, now = there.link, self._account.now()
        moved = attrs.evolve(link, id=link_id(self._account.name, to), conversation=to)

        async def store() -> None:
            await self._account.core.writer.run(channels.remove_links, [link], now)
            await self._account.core.writer.run(channels.put_link, moved, now)

        await self.surely(store)
        self._end(there)
        self._deliver(moved)

    async def go(self, there: ConversationDelivery, chat: str) -> None:
        """Move a conversation to another chat of its user."""
        fields: Mapping[str, Any] = {"chat": chat, "delivered": await self.head(there.link.user, chat)}
        await self.surely(lambda: there.change(there.chat, **fields, parts=0, draft=""))
        there.reopen()

    async def surely(self, store: Callable[[], Awaitable[object]]) -> None:
        """Store something, however long the store refuses it."""
        failures = 0
        while True:
            try:
                await store()
            except (ActorStopped, ChatBusy, StorageError) as error:
                failures += 1
                log.warning("not_stored_yet", name=self._account.name, error=error_class(error))
            else:
                return
            await trio.sleep(AGAIN.pause_s(failures))

    async def post(self, conversation: str, text: str, key: str) -> None:
        """Say something that is stored nowhere. It is given up when the service does not take it."""
        for number, part in enumerate(self._account.messenger.render(text)):
            for failures in range(1, SAY_TRIES):
                try:
                    await self._account.messenger.post(conversation, part, f"{key}-{number}")
                    break
                except TooManyRequests as error:
                    await trio.sleep(error.after_s)
                except ConversationMoved as error:
                    conversation = error.to
                except Unreachable:
                    await trio.sleep(AGAIN.pause_s(failures))
                except ChannelError as error:
                    log.warning("not_said", name=self._account.name, error=error_class(error))
                    return
            else:
                log.warning("not_said", name=self._account.name, error="Unreachable")
                return

    async def head(self, user: UserId, chat: str) -> int:
        """The number of the last message of a chat; 0 for a new one."""
        found = await self._account.core.readers.run(messages.session, chat_id(user, chat))
        return found.last_seq if found is not None else 0

    def _deliver(self, link: LinkedConversation) -> ConversationDelivery:
        made = self.deliveries[link.conversation] = ConversationDelivery(self._account, link, self.move)
        self._nursery.start_soon(made.run)
        return made

    def _end(self, there: ConversationDelivery) -> None:
        there.scope.cancel(reason="the conversation is not linked any more")
        self.deliveries.pop(there.link.conversation, None)
