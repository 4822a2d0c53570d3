"""The chat actor: stores what comes in, debounces it, and runs one turn at a time.

It owns the chat's debounce buffer and its running turn; the messages are in the store, so a restart loses nothing."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, assert_never

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.mailbox import Mailbox, Reply
from klaw.actor.supervisor import TaskStarted, Vitals
from klaw.agent.agent import Agent
from klaw.chats import commands
from klaw.chats.commands import Command, SlashAnswer, SlashCommand, SlashCommands, UnknownCommand
from klaw.chats.debounce import Debounce
from klaw.chats.requests import FROM_MCP, HTTP, Recover, StopTurn, Submit, Vary, attach_to, named_in, with_rounds
from klaw.chats.turn import Turn, leave_unanswered
from klaw.domain.attachment import TRANSCRIBED
from klaw.domain.events import Step, StepChanged, VariantShown
from klaw.domain.message import HEARD, MessageKind, NewMessage, Role, TurnStatus
from klaw.domain.names import ChatId, user_of
from klaw.errors import AnswerRunning, CannotReplace, KlawError
from klaw.store.kinds import attachments, messages
from klaw.store.kinds.messages import AppendedMessage
from klaw.store.kinds.pending import read_rows
from klaw.store.kinds.variants import replace
from klaw.store.kinds.variants.replace import Wish

MAX_BATCH = 64
"""Messages that are handed to the writer together; with as many not stored yet, the chat takes no more."""
log = structlog.get_logger("klaw.chat")


@attrs.frozen(kw_only=True)
class TurnOver:
    turn: Turn
    status: TurnStatus | None


Msg: TypeAlias = Submit | StopTurn | Recover | Vary | TurnOver


class ChatHandle:
    def __init__(self, chat: ChatId, capacity: int) -> None:
        self.chat = chat
        self.mailbox: Mailbox[Msg] = Mailbox(f"chat {chat}", capacity)
        self.state = "idle"
        """Without a running turn: idle, waiting (debouncing) or failed (the last turn)."""
        self.turn: Turn | None = None

    def status(self) -> dict[str, Any]:
        """What it does now: ``state`` (idle, waiting, thinking, answering, failed), and ``turn`` if one runs."""
        if self.turn is None:
            return {"state": self.state}
        if self.turn.answering:
            return {"state": "answering", "turn": self.turn.id}
        return {"state": "thinking", "turn": self.turn.id, "doing": self.turn.step}


async def run(
    vitals: Vitals, task_status: TaskStarted, *, handle: ChatHandle, agent: Agent, slash: SlashCommands
) -> None:
    """One incarnation. Ends when the mailbox closes (after the last turn) or when the chat is idle."""
    structlog.contextvars.bind_contextvars(user=user_of(handle.chat), chat=handle.chat)
    async with trio.open_nursery() as nursery:
        handle.turn = None
        actor = _ChatActor(vitals=vitals, handle=handle, agent=agent, slash=slash, nursery=nursery)
        if vitals.restarts:
            with suppress(KlawError):
                await agent.core.writer.ping()  # what the last incarnation handed over is stored then, or refused
            await actor.recover()
        task_status.started()
        await actor.loop()


@attrs.define(kw_only=True)
class _ChatActor:
    vitals: Vitals
    handle: ChatHandle
    agent: Agent
    slash: SlashCommands
    nursery: trio.Nursery
    debounce: Debounce = attrs.field(init=False)
    waiting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    storing: Reply[tuple[AppendedMessage, ...]] | None = attrs.field(default=None, init=False)
    """The last plain message that was handed to the writer."""
    unstored: int = attrs.field(default=0, init=False)
    wishes: Submit | None = attrs.field(default=None, init=False)
    """The last message of the next turn with ``instructions``, ``options`` or a ``model``."""

    def __attrs_post_init__(self) -> None:
        processing = self.agent.core.config.processing
        self.debounce = Debounce(quiet_s=processing.debounce_ms / 1000, longest_s=processing.debounce_max_ms / 1000)

    @property
    def turn(self) -> Turn | None:
        return self.handle.turn

    @property
    def chat(self) -> ChatId:
        return self.handle.chat

    @property
    def most_bytes(self) -> int:
        return self.agent.core.config.chats.max_user_bytes_per_day

    async def loop(self) -> None:
        while True:
            self._show_state()
            message = None
            closed = False
            with trio.CancelScope(deadline=self._wake_at()) as self.waiting:
                try:
                    message = await self.handle.mailbox.receive(self._take_at_once)
                except trio.EndOfChannel:
                    closed = True
            if closed:
                await self._finish()
                return
            if message is not None:
                await self._handle(message)
            elif self._turn_is_due():
                self._start_turn()
            elif self._has_nothing_to_do() and self.handle.mailbox.close_if_empty("idle"):
                return

    async def recover(self, *, however_old: bool = False) -> None:
        """Answer what is pending, unless it is older than ``recovery.answerPendingSeconds`` or waits for a program."""
        rows = await self.agent.core.readers.run(read_rows, self.chat, 1)
        oldest = iso(self.agent.core.clock.now() - self.agent.core.config.recovery.answer_pending_s)
        if rows is not None and (however_old or (rows.pending[-1].created_at >= oldest and not rows.waits)):
            self.debounce.hurry(trio.current_time())

    # -- messages --------------------------------------------------------------------------------------------------

    async def _handle(self, message: Msg) -> None:
        match message:
            case Submit() if found := named_in(message, self.chat, self.agent.tools.mcp):
                self.nursery.start_soon(attach_to, message, found, self.chat, self.handle.mailbox, self.agent.core)
            case Submit():
                command = self._parse(message)
                if command is None:
                    more = self.handle.mailbox.take_while(self._is_plain, MAX_BATCH - 1)
                    await self._store([message, *(other for other in more if isinstance(other, Submit))])
                else:
                    await self._command(message, command)
            case StopTurn():
                await self._settle()
                of_another = message.seq is not None and self.turn is not None and not self.turn.answers(message.seq)
                message.reply.set(not of_another and await self._stop("stopped by the user"))
            case Recover():
                self.wishes = message.said or self.wishes
                await self.recover(however_old=message.however_old)
            case Vary():
                try:
                    message.reply.set(await self._vary(message.wish, message.said))
                except KlawError as error:
                    message.reply.fail(error)
            case TurnOver():
                if self.turn is message.turn:
                    self.handle.turn = None
                    self.handle.state = "failed" if message.status is TurnStatus.FAILED else "idle"
                await self._warn()
            case _:
                assert_never(message)

    async def _vary(self, wish: Wish, said: Submit) -> AppendedMessage | None:
        """Show another variant, and answer a new one. Raises AnswerRunning, and what ``replace.vary`` raises."""
        await self._settle()
        if self.turn is not None or self.debounce.due is not None:
            raise AnswerRunning("an answer is being written: wait for it, or stop it with /stop")
        new, limits = self._message(said, MessageKind.TEXT), self.agent.core.config.attachments
        vary = partial(replace.vary, new=new, wish=wish, limits=limits, most_bytes=self.most_bytes)
        question = await self.agent.core.writer.run(with_rounds(vary, said, self.chat, self.agent.composer))
        self.agent.core.events.emit(VariantShown(chat=self.chat))
        self.agent.memory.embedder.nudge()
        if question is not None:
            self.wishes = said
            self.debounce.hurry(trio.current_time())
        return question

    async def _replace(self, asked: SlashCommand) -> str:
        edits = asked.command == Command.EDIT
        if edits and not asked.rest:
            return "Say the new text too, as in /edit What is the capital of Peru?"
        said = Submit(id=self.agent.core.new_id(), text=asked.rest, model=None if edits else asked.rest or None)
        try:
            await self._vary(Wish(edits=edits), said)
        except (AnswerRunning, CannotReplace) as error:
            return f"That did not work: {error}."
        what = "Your last message is replaced; the one" if edits else "Answering again; the answer"
        return f"{what} before is kept as a variant."

    async def _warn(self) -> None:
        warning = self.agent.llm.budget.take_warning()
        if warning is None:
            return
        try:
            notice = self._system(MessageKind.TEXT, warning, {"budget": "warning"})
            await self.agent.core.writer.run(messages.append, [notice])
        except KlawError as error:
            log.warning("warning_not_stored", error=type(error).__name__)

    async def _store(self, submits: Sequence[Submit]) -> None:
        """Hand messages to the writer, in order; each is answered by itself. The actor does not wait for that."""
        if self.unstored >= MAX_BATCH:
            await self._settle()
        writer, limits = self.agent.core.writer, self.agent.core.config.attachments
        for submit in submits:
            new = self._message(submit, MessageKind.TEXT)
            if submit.files or submit.rounds:
                add = partial(
                    attachments.append, new=new, files=submit.files, limits=limits, most_bytes=self.most_bytes
                )
                storing = await writer.begin(with_rounds(add, submit, self.chat, self.agent.composer))
            else:
                storing = await writer.begin(attachments.append_plain, new, self.most_bytes)
            self._follow(submit, storing)

    def _take_at_once(self, message: Msg) -> bool:
        if self.unstored >= MAX_BATCH or not isinstance(message, Submit) or not self._is_plain(message):
            return False
        if message.files or message.rounds:
            return False
        try:
            new = self._message(message, MessageKind.TEXT)
            storing = self.agent.core.writer.offer(attachments.append_plain, new, self.most_bytes)
        except KlawError as error:
            message.reply.fail(error)
            return True
        if storing is not None:
            self._follow(message, storing)
        return storing is not None

    def _follow(self, submit: Submit, storing: Reply[tuple[AppendedMessage, ...]]) -> None:
        self.storing = storing
        self.unstored += 1
        storing.then(partial(self._stored, submit))

    def _stored(self, submit: Submit, stored: Reply[tuple[AppendedMessage, ...]]) -> None:
        self.unstored -= 1
        try:
            (appended,) = stored.get()
        except KlawError as error:
            submit.reply.fail(error)
            return
        submit.reply.set(appended)
        if not appended.repeated:
            self.wishes = submit if submit.has_wishes else self.wishes
            now = trio.current_time()
            if not submit.channel.startswith(HEARD):
                (self.debounce.hurry if submit.channel == HTTP else self.debounce.add)(now)
            self.agent.memory.embedder.nudge()
            self._show_state()
            self.waiting.deadline = self._wake_at()

    async def _settle(self) -> None:
        """Wait until what came before is stored, or refused: then the debounce knows of it."""
        if self.unstored and self.storing is not None:
            with suppress(KlawError):
                await self.storing.wait()

    def _parse(self, submit: Submit) -> SlashCommand | UnknownCommand | None:
        return None if submit.files or submit.question else commands.parse(submit.text, self.slash.meanings)

    def _is_plain(self, message: Msg) -> bool:
        if not isinstance(message, Submit) or self._parse(message) is not None:
            return False
        return not named_in(message, self.chat, self.agent.tools.mcp)

    async def _command(self, submit: Submit, command: SlashCommand | UnknownCommand) -> None:
        """Store the command, carry it out, store the answer. A repeated id is acknowledged only."""
        self.vitals.doing("carrying out a command")
        await self._settle()
        try:
            new = self._message(submit, MessageKind.COMMAND)
            (appended,) = await self.agent.core.writer.run(attachments.append_plain, new, self.most_bytes)
        except KlawError as error:
            submit.reply.fail(error)
            return
        submit.reply.set(appended)
        if appended.repeated:
            return
        try:
            done = await self._carry_out(command)
            answer = self._system(MessageKind.COMMAND, done.text, {"command": submit.id, **done.metadata})
            await self.agent.core.writer.run(messages.append, [*done.before, answer])
        except KlawError as error:
            log.warning("command_failed", error=type(error).__name__)

    async def _carry_out(self, asked: SlashCommand | UnknownCommand) -> SlashAnswer:
        if isinstance(asked, UnknownCommand):
            return SlashAnswer(commands.unknown_text(asked, self.slash.meanings))
        if asked.command in self.slash.meanings:
            return await self.slash.run(asked.command, self.chat, asked.rest, self._stop)
        match Command(asked.command):
            case Command.NEW:
                await self._stop("/new")
                text = "Fresh start. Earlier messages stay searchable."
                return SlashAnswer(text, before=(self._system(MessageKind.SESSION_BREAK, "", {}),))
            case Command.STOP:
                return SlashAnswer("Stopped." if await self._stop("/stop") else "There was nothing to stop.")
            case Command.RETRY:
                return SlashAnswer(await self._retry())
            case Command.EDIT | Command.REGENERATE:
                return SlashAnswer(await self._replace(asked))
            case Command.HELP:
                return SlashAnswer(commands.help_text(self.slash.meanings))

    async def _retry(self) -> str:
        if self.turn is not None:
            return "An answer is already being written."
        if await self.agent.core.readers.run(read_rows, self.chat, 1) is None:
            return "Nothing to retry."
        self.debounce.hurry(trio.current_time())
        return "Trying again."

    # -- turns -----------------------------------------------------------------------------------------------------

    def _wake_at(self) -> float:
        if self.turn is not None:
            return float("inf")
        if self.debounce.due is not None:
            return self.debounce.due
        return trio.current_time() + self.agent.core.config.chats.idle_s

    def _turn_is_due(self) -> bool:
        return self.turn is None and self.debounce.due is not None and self.debounce.due <= trio.current_time()

    def _has_nothing_to_do(self) -> bool:
        # A message may have become durable, and put off the turn, after the deadline and before this.
        return self.turn is None and self.debounce.due is None and not self.unstored

    def _start_turn(self) -> Turn:
        self.debounce.clear()
        wishes, self.wishes = self.wishes or Submit(id="", text=""), None
        id_ = self.agent.core.new_id()
        turn = Turn(id=id_, chat=self.chat, agent=self.agent, vitals=self.vitals, wishes=wishes)
        self.handle.turn = turn
        self.nursery.start_soon(self._run_turn, turn)
        return turn

    async def _run_turn(self, turn: Turn) -> None:
        structlog.contextvars.bind_contextvars(turn=turn.id)
        status = None
        try:
            status = await turn.run()
        finally:
            self.handle.mailbox.tell_self(TurnOver(turn=turn, status=status))

    async def _stop(self, reason: str) -> bool:
        """End the running turn, or drop what waits for one. Returns whether there was something to stop."""
        if (turn := self.turn) is not None:
            turn.stop(reason)
            await turn.over.wait()
            if not turn.began:
                await leave_unanswered(self.agent, self.chat)
            return True
        if self.debounce.due is None:
            return False
        self.debounce.clear()
        self.wishes = None
        await leave_unanswered(self.agent, self.chat)
        return True

    async def _finish(self) -> None:
        """The mailbox is closed (shutdown): let a running turn end, then answer what waits for its debounce."""
        await self._settle()
        while self.turn is not None or self.debounce.due is not None:
            turn = self.turn or self._start_turn()
            self.vitals.doing("finishing the last turn")
            await turn.over.wait()
            self.handle.turn = None

    def _show_state(self) -> None:
        if self.turn is not None:
            return
        before, waits = self.handle.state, self.debounce.due is not None
        if waits != (before == "waiting"):
            step = Step.WAITING if waits else Step.NOTHING
            self.agent.core.events.emit(StepChanged(chat=self.chat, turn=None, step=step))
        if waits:
            self.handle.state = "waiting"
        elif before != "failed":
            self.handle.state = "idle"
        self.vitals.doing(self.handle.state)

    def _message(self, submit: Submit, kind: MessageKind) -> NewMessage:
        metadata = dict.fromkeys([TRANSCRIBED] * submit.transcribed + [FROM_MCP] * submit.attached, True)
        return self.agent.composer.from_user(self.chat, submit.id, submit.channel, kind, submit.text, metadata)

    def _system(self, kind: MessageKind, text: str, metadata: dict[str, Any]) -> NewMessage:
        return self.agent.composer.own(self.chat, Role.SYSTEM, kind, text, metadata)
