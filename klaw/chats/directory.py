"""The directory of chats: finds or starts the actor of a chat, and answers what needs no actor from the store. No actor
of its own: looking up a handle never waits. Idle chats retire by themselves; the next message starts them again."""

from collections.abc import Mapping
from typing import Any

import structlog

from klaw.actor.mailbox import Reply
from klaw.actor.supervisor import ActorSpec, ActorState
from klaw.agent.agent import Agent
from klaw.chats import chat as chat_actor
from klaw.chats.chat import ChatHandle
from klaw.chats.commands import SlashCommands
from klaw.chats.requests import WEBSOCKET, ClientCall, Recover, StopTurn, Submit, Vary, store_results
from klaw.domain import names
from klaw.domain.attachment import NamedFile
from klaw.domain.message import Message, TurnRecord, kept_text
from klaw.domain.names import ChatId, UserId
from klaw.errors import ActorStopped, ChatBusy, TooManyChats
from klaw.store.kinds import chats, messages, pending, turns
from klaw.store.kinds.chats import StoredChat
from klaw.store.kinds.messages import AppendedMessage, ChatRow
from klaw.store.kinds.variants.replace import Wish

PARENT = "chats"

log = structlog.get_logger("klaw.chats")


def at_rest(status: Mapping[str, Any], unanswered: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The status of a chat; if it does nothing while a message of it has no answer, that."""
    return unanswered if unanswered is not None and status["state"] in ("idle", "failed") else status


class ChatDirectory:
    """Chats of all users. What takes a user sees that user's chats only."""

    def __init__(self, agent: Agent, slash: SlashCommands) -> None:
        self._supervisor = agent.core.supervisor
        self._agent = agent
        self._slash = slash
        self._handles: dict[ChatId, ChatHandle] = {}
        self._closing: str | None = None

    def is_on_trial(self) -> bool:
        """Whether nothing but the built-in model answers."""
        config = self._agent.core.config
        return config.is_built_in(config.routing.default) and not config.providers

    def runs(self, chat: ChatId) -> bool:
        """Whether ``submit`` may be called; else ``start`` it."""
        handle = self._handles.get(chat)
        return handle is not None and not handle.mailbox.closed and self._closing is None

    async def start(self, user: UserId, name: str) -> None:
        """Have a chat run; its first message creates it. Raises InvalidName, TooManyChats, ActorStopped."""
        await self._handle(names.chat_id(user, name))

    def submit(
        self,
        chat: ChatId,
        message_id: str,
        text: str,
        reply: Reply[AppendedMessage],
        files: tuple[NamedFile, ...] = (),
        model: str | None = None,
        *,
        transcribed: bool = False,
    ) -> None:
        """Hand a message, or a slash command, of the WebSocket to a chat that runs, without waiting. Raises ChatBusy,
        ActorStopped: nothing was stored.

        The reply comes when it is durable, or with IdConflict, AttachmentRefused, StorageFull or ActorStopped.
        ``MessageStored`` was emitted before, unless ``repeated``."""
        submit = Submit(id=message_id, text=text, reply=reply, files=files, model=model, transcribed=transcribed)
        self._hand_over(chat, submit)

    async def send(
        self,
        user: UserId,
        name: str,
        message_id: str,
        text: str,
        files: tuple[NamedFile, ...] = (),
        channel: str = WEBSOCKET,
        **more: Any,
    ) -> AppendedMessage:
        """``deliver`` a message; ``more``: see ``Submit``."""
        submit = Submit(id=message_id, text=text, files=files, channel=channel, **more)
        return await self.deliver(user, name, submit)

    async def deliver(self, user: UserId, name: str, submit: Submit) -> AppendedMessage:
        """``start`` the chat, hand it a message, and wait until it is durable. Raises as ``start`` and ``submit``. The
        id makes a repetition safe."""
        await self.start(user, name)
        self._hand_over(names.chat_id(user, name), submit)
        return await submit.reply.wait()

    def _hand_over(self, chat: ChatId, message: Submit) -> None:
        self._refuse_if_closing()
        if not self._handles[chat].mailbox.tell(message):
            raise ChatBusy("too many messages wait for this chat: send again a little later")

    async def stop(self, user: UserId, name: str, seq: int | None = None) -> bool:
        """Cancel the chat's running turn; with a ``seq`` only if that message is the last that it answers. Returns
        whether one was running."""
        handle = self._handles.get(names.chat_id(user, name))
        if handle is None or handle.mailbox.closed:
            return False
        return await handle.mailbox.ask(lambda reply: StopTurn(reply=reply, seq=seq))

    async def retry(self, user: UserId, name: str, said: Submit | None = None) -> None:
        """Answer what is left unanswered in a chat, however old, with the instructions and options of ``said``. Raises
        InvalidName, TooManyChats, ActorStopped."""
        (await self._handle(names.chat_id(user, name))).mailbox.tell(Recover(however_old=True, said=said))

    async def keep_results(self, user: UserId, name: str, turn: str, calls: tuple[ClientCall, ...]) -> AppendedMessage:
        """See ``store_results``."""
        return await store_results(turn, calls, names.chat_id(user, name), self._agent.composer, self._agent.core)

    async def client_calls(self, user: UserId) -> list[Message]:
        return await self._agent.core.readers.run(pending.client_calls, user)

    async def vary(self, user: UserId, name: str, wish: Wish, said: Submit) -> AppendedMessage | None:
        """Show another variant of a message; a new one is answered. Returns that message. Raises as ``start``,
        AnswerRunning, and as ``store.kinds.variants.replace.vary``."""
        handle = await self._handle(names.chat_id(user, name))
        return await handle.mailbox.ask(lambda reply: Vary(wish=wish, said=said, reply=reply))

    async def session(self, user: UserId, name: str) -> ChatRow | None:
        return await self._agent.core.readers.run(messages.session, names.chat_id(user, name))

    async def listed(self, user: UserId, limit: int, *, archived: bool) -> list[StoredChat]:
        """The user's archived chats, or the others, the last used first."""
        return await self._agent.core.readers.run(chats.listed, user, limit, archived=archived)

    async def after(self, chat: ChatId, seq: int, limit: int) -> list[Message]:
        return await self._agent.core.readers.run(messages.after, chat, seq, limit)

    async def before(self, chat: ChatId, seq: int, limit: int) -> list[Message]:
        """The newest messages of a chat before a seq, oldest first."""
        return await self._agent.core.readers.run(messages.before, chat, seq, limit)

    async def shown(self, chat: ChatId, limit: int, *, oldest: bool = False) -> list[Message]:
        return await self._agent.core.readers.run(pending.shown, chat, limit, oldest=oldest)

    async def receipt(self, user: UserId, name: str, turn: str | None) -> TurnRecord | None:
        """A turn with its receipt; without an id the chat's last one. Raises InvalidName."""
        chat = names.chat_id(user, name)
        if turn is None:
            return await self._agent.core.readers.run(turns.last, chat)
        found = await self._agent.core.readers.run(turns.get, user, turn)
        return found if found is not None and found.chat == chat else None

    async def answering(self, chat: ChatId, seq: int) -> TurnRecord | None:
        """The last turn that was to answer the message with this seq, once it is over."""
        return await self._agent.core.readers.run(turns.answering, chat, seq)

    def chat_status(self, chat: ChatId) -> dict[str, Any]:
        handle = self._handles.get(chat)
        if handle is None or handle.mailbox.closed:
            return {"state": "idle"}
        if self._supervisor.state(_actor_name(chat)) is ActorState.FAILED:
            return {"state": "failed"}
        return handle.status()

    def rests(self, chat: ChatId) -> bool:
        """Whether no answer is being written or about to be."""
        return self.chat_status(chat)["state"] in ("idle", "failed")

    async def unanswered(self, chat: ChatId) -> dict[str, Any] | None:
        """``chat_status`` of a chat in which a message has no answer, as long as nothing is done about that: with the
        ``code`` and ``message`` of why. Read from the store."""
        found = await self._agent.core.readers.run(pending.unanswered, chat)
        if isinstance(found, TurnRecord):
            why = found.receipt.get("reason", "the answer failed")
            return {"state": "failed", "turn": found.id, "code": found.error, "message": kept_text(why)}
        none = {"state": "failed", "code": "unanswered", "message": kept_text("there is no answer yet")}
        return none if found else None

    def health(self) -> dict[str, Any]:
        return dict(self._agent.core.health.problems())

    async def recover(self, chats: list[ChatId]) -> None:
        for chat in chats:
            handle = await self._handle(chat)
            handle.mailbox.tell(Recover())
        if chats:
            log.info("recovering_chats", chats=len(chats))

    def close(self, reason: str) -> list[str]:
        """Start no more chats. Returns the names of the actors to stop."""
        self._closing = reason
        return [_actor_name(chat) for chat in self._handles if self._supervisor.alive(_actor_name(chat))]

    async def _handle(self, chat: ChatId) -> ChatHandle:
        while True:
            self._refuse_if_closing()
            handle = self._handles.get(chat)
            name = _actor_name(chat)
            if handle is not None and not handle.mailbox.closed:
                return handle
            if self._supervisor.state(name) is ActorState.FAILED:
                raise ActorStopped("this chat has failed too often; it is tried again in a few minutes")
            if self._supervisor.alive(name):
                await self._supervisor.wait_ended(name)  # it is retiring
                continue
            await self._refuse_too_many(chat)
            self._refuse_if_closing()
            if not self._supervisor.alive(name):
                return self._start(chat, name)

    def _refuse_if_closing(self) -> None:
        if self._closing is not None:
            raise ActorStopped(f"chats: {self._closing}")

    async def _refuse_too_many(self, chat: ChatId) -> None:
        user, limit = names.user_of(chat), self._agent.core.config.chats.max_per_user
        if await self._agent.core.readers.run(chats.get, user, chat) is None:
            known = await self._agent.core.readers.run(chats.count, user)
            starting = sum(names.user_of(other) == user for other in self._handles)
            if max(known, starting) >= limit:
                raise TooManyChats(f"there are {limit} chats already (chats.maxPerUser)")

    def _start(self, chat: ChatId, name: str) -> ChatHandle:
        config = self._agent.core.config
        handle = ChatHandle(chat, config.chats.mailbox_size)
        self._handles[chat] = handle

        async def run(vitals: Any, task_status: Any) -> None:
            try:
                await chat_actor.run(vitals, task_status, handle=handle, agent=self._agent, slash=self._slash)
            finally:
                if handle.mailbox.closed and self._handles.get(chat) is handle:
                    del self._handles[chat]

        self._supervisor.start_soon(
            ActorSpec(name=name, run=run, mailbox=handle.mailbox, parent=PARENT, stop_budget_s=config.shutdown.grace_s)
        )
        return handle


def _actor_name(chat: ChatId) -> str:
    return f"chat {chat}"
