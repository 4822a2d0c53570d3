"""What a turn does with its tool calls: stores each message at once, tells the watchers, keeps the account."""

from collections.abc import Callable
from typing import Any

import attrs

from klaw.actor.vitals import Vitals
from klaw.context.compose import Composer
from klaw.domain.events import EventSink, ToolUsed
from klaw.domain.names import ChatId
from klaw.domain.text import clean
from klaw.llm.types import ToolCall
from klaw.store.kinds import messages
from klaw.store.writer import Writer
from klaw.toolbox.calls import PreparedCall, in_short
from klaw.toolbox.executor import CallResult


@attrs.define(kw_only=True)
class Rounds:
    """Implements ``toolbox.loop.Hooks`` for one turn."""

    chat: ChatId
    turn: str
    writer: Writer
    composer: Composer
    events: EventSink
    vitals: Vitals
    stored: Callable[[], None]
    """Called when a round's first message is stored: what was streamed is in it."""
    count: int = 0
    calls: list[dict[str, Any]] = attrs.Factory(list)
    """For the receipt: name, round, and once it ended its state, length and time; no arguments and no results."""
    _by_id: dict[str, dict[str, Any]] = attrs.Factory(dict)

    async def called(self, text: str, calls: tuple[PreparedCall, ...]) -> None:
        """See ``Hooks.called``."""
        self.vitals.doing("storing tool calls")
        own = [prepared.call for prepared in calls]
        await self.writer.run(messages.append, [self.composer.tool_call(self.chat, self.turn, clean(text), own)])
        self.stored()
        self.count += 1
        for call in own:
            account = {"name": call.name, "round": self.count, "state": "interrupted"}
            self.calls.append(account)
            self._by_id[call.id] = account
        self.vitals.doing("running tools")

    def started(self, call: PreparedCall) -> None:
        """See ``Hooks.started``."""
        self._tell(call.call, "started", in_short(call.arguments))

    async def ended(self, result: CallResult) -> None:
        """See ``Hooks.ended``."""
        call, state = result.call, "failed" if result.failed else "done"
        account = self._by_id[call.id]
        account |= {"state": state, "chars": result.chars, "duration_ms": round(result.duration_ms, 1)}
        message = self.composer.tool_result(
            self.chat, self.turn, call, result.text, failed=result.failed, origin=result.origin
        )
        await self.writer.run(messages.append, [message])
        self._tell(call, state)

    def describe(self, offered: int, earlier: int) -> dict[str, Any]:
        """The part of the receipt that is about tools.

        Args:
            offered: how many tools the model was offered.
            earlier: rounds of an interrupted turn that this one went on with.
        """
        told: dict[str, Any] = {"offered": offered, "rounds": self.count, "calls": self.calls}
        return {**told, "earlier_rounds": earlier} if earlier else told

    def _tell(self, call: ToolCall, state: str, what: str = "") -> None:
        used = ToolUsed(chat=self.chat, turn=self.turn, call=call.id, name=call.name, state=state, what=what)
        self.events.emit(used)
