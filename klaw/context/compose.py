"""Making new messages of a chat: what its user wrote, and what Klaw itself adds."""

from collections.abc import Callable
from typing import Any

import attrs

from klaw.actor.clock import Clock, iso
from klaw.domain import tokens
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import ChatId, user_of
from klaw.llm.providers.adapt import call_tokens, echo_of, echo_tokens
from klaw.llm.types import ToolCall

OWN_CHANNEL = "klaw"


@attrs.frozen(kw_only=True)
class Composer:
    clock: Clock
    new_id: Callable[[], str]

    def from_user(
        self, chat: ChatId, message_id: str, channel: str, kind: MessageKind, text: str, metadata: dict[str, Any]
    ) -> NewMessage:
        """A message of the chat's user, with the id that their client chose."""
        return self._message(chat, message_id, channel, Role.USER, kind, text, metadata)

    def own(self, chat: ChatId, role: Role, kind: MessageKind, text: str, metadata: dict[str, Any]) -> NewMessage:
        """A message that Klaw makes. Calls in the metadata, and what goes back with them, count as tokens."""
        return self._message(chat, self.new_id(), OWN_CHANNEL, role, kind, text, metadata)

    def _message(
        self,
        chat: ChatId,
        message_id: str,
        channel: str,
        role: Role,
        kind: MessageKind,
        text: str,
        metadata: dict[str, Any],
    ) -> NewMessage:
        calls = [ToolCall(**call) for call in metadata.get("calls", ())]
        return NewMessage(
            id=message_id,
            chat=chat,
            user=user_of(chat),
            channel=channel,
            role=role,
            type=kind,
            content=text,
            tokens=tokens.estimate(text) + call_tokens(calls) + echo_tokens(echo_of(metadata)),
            created_at=iso(self.clock.now()),
            metadata=metadata,
        )
