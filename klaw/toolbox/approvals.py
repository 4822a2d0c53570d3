"""Asking the user before a tool does something, or for a tool: the open questions of all chats, and who may answer.

No actor: every change is one step without an await. Who asks waits here, with a deadline; who answers (the gateway,
for a client that watches the chat) only resolves it. Nothing is stored: a restart ends the turn that asked, too.
"""

from collections.abc import Callable

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.mailbox import Reply
from klaw.domain.events import Approval, ApprovalAsked, ApprovalEnded, EventSink, Outcome
from klaw.domain.names import ChatId, UserId, user_of
from klaw.domain.text import printable
from klaw.errors import ToolRefused
from klaw.toolbox.spec import Arguments, ToolContext, ToolFailure, ToolSpec, call_text

MAX_OPEN = 256
MAX_OPEN_PER_CHAT = 8
MAX_WHAT_CHARS = 20_000
"""What is longer nobody would read to its end before allowing it."""

log = structlog.get_logger("klaw.tools")


@attrs.frozen
class WrittenAnswer:
    """What a person wrote as the answer to a question."""

    text: str


@attrs.define(eq=False, kw_only=True)
class Approvals:
    _events: EventSink
    _clock: Clock
    _new_id: Callable[[], str]
    """Makes ids that cannot be guessed from others."""
    wait_s: float
    """How long a question is open (``tools.exec.approvalSeconds``)."""
    _watchers: Callable[[ChatId], int]
    """How many clients watch a chat."""
    _open: dict[str, tuple[Approval, Reply[Outcome | WrittenAnswer]]] = attrs.field(factory=dict, init=False)
    _takes_text: list[Reply[Outcome | WrittenAnswer]] = attrs.field(factory=list, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    async def ask(self, chat: ChatId, tool: str, what: str, turn: str | None = None) -> Outcome | None:
        """Ask the user of a chat and wait for yes or no. None when too many questions are open, or at shutdown.
        ``what`` is shown with escapes for characters that do not print. Cancelled, the question is withdrawn."""
        outcome = await self._ask(chat, tool, what, turn, reply=Reply())
        assert not isinstance(outcome, WrittenAnswer)
        return outcome

    async def ask_for_text(
        self, chat: ChatId, tool: str, what: str, turn: str | None
    ) -> Outcome | WrittenAnswer | None:
        """The same for a question that may also be answered with a text (``answer_text``)."""
        reply: Reply[Outcome | WrittenAnswer] = Reply()
        self._takes_text.append(reply)
        try:
            return await self._ask(chat, tool, what, turn, reply)
        finally:
            self._takes_text.remove(reply)

    async def _ask(
        self, chat: ChatId, tool: str, what: str, turn: str | None, reply: "Reply[Outcome | WrittenAnswer]"
    ) -> Outcome | WrittenAnswer | None:
        if self._closed or len(self._open) >= MAX_OPEN or len(self.open(chat)) >= MAX_OPEN_PER_CHAT:
            return None
        until, what = iso(self._clock.now() + self.wait_s), printable(what)
        approval = Approval(id=self._new_id(), chat=chat, tool=tool, what=what, until=until, turn=turn)
        self._open[approval.id] = approval, reply
        outcome: Outcome | WrittenAnswer = Outcome.WITHDRAWN
        try:
            self._events.emit(ApprovalAsked(approval=approval))
            with trio.move_on_after(self.wait_s) as waiting:
                outcome = await reply.wait()
            if waiting.cancelled_caught:
                # Answered at the last moment, after the deadline woke this task: everybody was told so already.
                outcome = await reply.wait() if reply.resolved else Outcome.EXPIRED
        finally:
            self._end(approval, Outcome.ALLOWED if isinstance(outcome, WrittenAnswer) else outcome)
        return outcome

    async def approve(self, context: ToolContext, spec: ToolSpec, arguments: Arguments) -> str | None:
        """See ``executor.Approve``. A run asks in the chat that gets its result; without one it cannot ask."""
        question: str | None = call_text(spec, arguments)
        if spec.question is not None:
            try:
                question = await spec.question(context, arguments)
            except ToolRefused as refused:
                return ToolFailure.of(refused).text
        if question is None:
            return None
        chat = context.chat or context.deliver_to
        if chat is None or user_of(chat) != context.user:
            return f"{spec.name} was not run: the user must allow it, and this run has no chat to ask them in."
        if len(question) > MAX_WHAT_CHARS:
            return f"{spec.name} was not run: what it would do is too long to be shown to the user."
        outcome = await self.ask(chat, spec.name, question, context.turn)
        return self._refusal(spec.name, outcome, chat)

    def open(self, chat: ChatId) -> tuple[Approval, ...]:
        """The open questions of a chat, the oldest first."""
        return tuple(approval for approval, _ in self._open.values() if approval.chat == chat)

    def find(self, user: UserId, approval_id: str) -> Approval | None:
        approval, _ = self._open.get(approval_id, (None, None))
        return approval if approval is not None and user_of(approval.chat) == user else None

    def answer(self, approval: Approval, *, allow: bool) -> Outcome | None:
        """Answer an open question; the first answer counts. None when it is not open any more."""
        found = self._open.get(approval.id)
        outcome = Outcome.ALLOWED if allow else Outcome.DENIED
        if found is None or not found[1].set(outcome):
            return None
        # At once, so that nobody is shown a question that is answered.
        self._end(approval, outcome)
        return outcome

    def answer_text(self, chat: ChatId, text: str) -> bool:
        """Answer the oldest open question of a chat that takes a text. False: there is none."""
        for approval, reply in list(self._open.values()):
            if approval.chat == chat and reply in self._takes_text and reply.set(WrittenAnswer(text)):
                self._end(approval, Outcome.ALLOWED)
                return True
        return False

    def close(self) -> None:
        """Withdraw the open questions, and ask no new one."""
        self._closed = True
        for approval, reply in list(self._open.values()):
            if reply.set(Outcome.WITHDRAWN):
                self._end(approval, Outcome.WITHDRAWN)

    def _end(self, approval: Approval, outcome: Outcome) -> None:
        if self._open.pop(approval.id, None) is not None:
            log.info("approval_ended", chat=approval.chat, turn=approval.turn, tool=approval.tool, status=outcome.value)
            self._events.emit(ApprovalEnded(chat=approval.chat, id=approval.id, outcome=outcome))

    def _refusal(self, name: str, outcome: Outcome | None, chat: ChatId) -> str | None:
        match outcome:
            case Outcome.ALLOWED:
                return None
            case Outcome.DENIED:
                return f"{name} was not run: the user said no. Do not try it again in another form; ask what they want."
            case Outcome.EXPIRED:
                why = "did not answer" if self._watchers(chat) else "is not connected, so nobody answered"
                return f"{name} was not run: it needs the user's permission, and the user {why} in {self.wait_s:g} s."
            case Outcome.WITHDRAWN:
                return f"{name} was not run: the server is stopping."
            case None:
                return f"{name} was not run: too many questions to the user are open, or the server is stopping."
