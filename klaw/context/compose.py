"""Making new messages of a chat: what its user wrote, and what Klaw itself adds."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from klaw.actor.clock import Clock, iso
from klaw.context.request import call_tokens
from klaw.domain import tokens
from klaw.domain.message import Kind, NewMessage, Role
from klaw.domain.names import ChatId, user_of
from klaw.llm.types import ToolCall

OWN_CHANNEL = "klaw"


@attrs.frozen(kw_only=True)
class Composer:
    """Stamps messages with the time, the estimated tokens and, for Klaw's own, an id."""

    clock: Clock
    new_id: Callable[[], str]

    def from_user(self, chat: ChatId, message_id: str, channel: str, kind: Kind, text: str) -> NewMessage:
        """A message that the chat's user sent, with the id that their client chose."""
        return self._message(chat, message_id, channel, Role.USER, kind, text, {})

    def own(self, chat: ChatId, role: Role, kind: Kind, text: str, metadata: dict[str, Any]) -> NewMessage:
        """A message that Klaw makes: an answer, a reply to a command, a session break."""
        return self._message(chat, self.new_id(), OWN_CHANNEL, role, kind, text, metadata)

    def tool_call(self, chat: ChatId, turn: str, text: str, calls: Sequence[ToolCall]) -> NewMessage:
        """What the model said before its calls, with the calls; their arguments count as tokens."""
        told = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
        metadata = {"turn": turn, "calls": told}
        role, kind = Role.ASSISTANT, Kind.TOOL_CALL
        return self._message(chat, self.new_id(), OWN_CHANNEL, role, kind, text, metadata, call_tokens(calls))

    def tool_result(
        self, chat: ChatId, turn: str, call: ToolCall, text: str, *, failed: bool, origin: str = "tool"
    ) -> NewMessage:
        """What a call brought. The origin of its text is kept where the role does not say it: the web."""
        metadata = {"turn": turn, "call": call.id, "name": call.name, "error": failed}
        if origin != "tool":
            metadata["origin"] = origin
        return self._message(chat, self.new_id(), OWN_CHANNEL, Role.TOOL, Kind.TOOL_RESULT, text, metadata)

    def _message(
        self,
        chat: ChatId,
        message_id: str,
        channel: str,
        role: Role,
        kind: Kind,
        text: str,
        metadata: dict[str, Any],
        more_tokens: int = 0,
    ) -> NewMessage:
        return NewMessage(
            id=message_id,
            chat=chat,
            user=user_of(chat),
            channel=channel,
            role=role,
            type=kind,
            content=text,
            tokens=tokens.estimate(text) + more_tokens,
            created_at=iso(self.clock.now()),
            metadata=metadata,
        )
