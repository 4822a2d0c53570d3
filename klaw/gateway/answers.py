"""From values of the domain to frames: stored messages, events, status."""

from collections.abc import Mapping
from typing import Any

from klaw.config.schema import AttachmentsConfig, GatewayConfig
from klaw.domain.attachment import MAX_FILES
from klaw.domain.events import (
    Approval,
    ApprovalAsked,
    ApprovalEnded,
    Step,
    StepChanged,
    TextStreamed,
    ToolUsed,
    TurnEnded,
    TurnStarted,
)
from klaw.domain.message import MOST_ON_PAGE, Message
from klaw.domain.names import name_of
from klaw.domain.turn import TurnStatus
from klaw.wire import frames
from klaw.wire.codec import encode
from klaw.wire.frames import DegradedPart, Error, MessageFrame, ServerLimits, Status, Tool


class StoredOnce:
    """A stored message on its way to every watcher, encoded at most once."""

    __slots__ = ("_text", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The ``message`` frame, encoded."""
        if self._text is None:
            self._text = message_text(self.message, replayed=False)
        return self._text


def message_text(message: Message, *, replayed: bool) -> str:
    """The ``message`` frame of a stored message, encoded."""
    return encode(MessageFrame.of(message, chat=name_of(message.chat), replayed=replayed or None))


def event_texts(
    event: TurnStarted | StepChanged | TextStreamed | ToolUsed | ApprovalAsked | ApprovalEnded | TurnEnded,
) -> list[str]:
    """The frames of an event, encoded; none for streamed text, which the outbox joins and encodes itself."""
    chat = name_of(event.chat)
    match event:
        case TurnStarted(turn=turn):
            return [encode(Status(chat=chat, state="thinking", turn=turn))]
        case StepChanged(turn=turn, step=Step.WAITING):
            return [encode(Status(chat=chat, state="waiting", turn=turn))]
        case StepChanged(turn=turn, step=Step.NOTHING):
            return [encode(Status(chat=chat, state="idle", turn=turn))]
        case StepChanged(turn=turn, step=step):
            return [encode(Status(chat=chat, state="thinking", turn=turn, doing=step))]
        case ToolUsed(turn=turn, call=call, name=name, state=state):
            return [encode(Tool(chat=chat, turn=turn, call=call, name=name, state=state, what=event.what or None))]
        case ApprovalAsked(approval=approval):
            return [approval_text(approval)]
        case ApprovalEnded(id=approval_id, outcome=outcome):
            return [encode(frames.ApprovalEndedFrame(chat=chat, id=approval_id, outcome=outcome))]
        case TurnEnded(turn=turn, status=TurnStatus.FAILED):
            message = event.text or "the answer failed"
            return [
                encode(Error(code=event.code or "turn_failed", message=message, retryable=True, chat=chat, turn=turn)),
                encode(Status(chat=chat, state="failed", turn=turn, ended=event.status)),
            ]
        case TurnEnded(turn=turn, status=status, citations_removed=removed):
            details = {"citations_removed": removed} if removed else None
            return [encode(Status(chat=chat, state="idle", turn=turn, ended=status, details=details))]
        case TextStreamed():
            return []


def approval_text(approval: Approval) -> str:
    return encode(
        frames.ApprovalFrame(
            chat=name_of(approval.chat),
            id=approval.id,
            tool=approval.tool,
            what=approval.what,
            until=approval.until,
            turn=approval.turn,
        )
    )


def chat_status(name: str, status: Mapping[str, Any]) -> Status:
    details = {key: value for key, value in status.items() if key not in ("state", "turn", "doing")}
    turn, doing = status.get("turn"), status.get("doing")
    return Status(chat=name, state=str(status["state"]), turn=turn, doing=doing, details=details or None)


def degraded(health: Mapping[str, Any]) -> list[DegradedPart]:
    return [DegradedPart(code=code, text=str(text)) for code, text in sorted(health.items())]


def limits(gateway: GatewayConfig, files: AttachmentsConfig) -> ServerLimits:
    return ServerLimits(
        max_frame_bytes=gateway.max_frame_bytes,
        messages_per_second=gateway.messages_per_second,
        burst=gateway.burst,
        history=MOST_ON_PAGE,
        max_file_bytes=files.max_file_bytes,
        max_message_file_bytes=files.max_message_bytes,
        max_files=MAX_FILES,
    )
