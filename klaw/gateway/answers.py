"""What a client is told: frames of stored messages, events, status and exceptions.

Exceptions have one mapping for the WebSocket, the HTTP API and the admin socket. The texts are fixed here, or are those
of Klaw's own errors, which never quote content.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
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
from klaw.errors import (
    ActorStopped,
    ActorTooSlow,
    AttachmentRefused,
    BadValue,
    ChatBusy,
    IdConflict,
    InvalidName,
    Problem,
    ProtocolError,
    StorageError,
    StorageFull,
    TooManyChats,
    TooMuchToday,
)
from klaw.operations.operation import OperationError
from klaw.wire import frames
from klaw.wire.codec import encode
from klaw.wire.frames import DegradedPart, Error, FieldError, MessageFrame, ServerLimits, Status, Tool

log = structlog.get_logger("klaw.gateway")


class StoredOnce:
    """A stored message on its way to every watcher, encoded at most once."""

    def __init__(self, message: Message) -> None:
        self.message = message

    @cached_property
    def text(self) -> str:
        """The ``message`` frame."""
        return message_text(self.message, replayed=False)


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
        case StepChanged(turn=turn, step=Step.WAITING | Step.NOTHING as step):
            return [encode(Status(chat=chat, state="waiting" if step is Step.WAITING else "idle", turn=turn))]
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
    fields = {name: getattr(approval, name) for name in ("id", "tool", "what", "until", "turn")}
    return encode(frames.ApprovalFrame(chat=name_of(approval.chat), **fields))


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


# -- errors ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class ErrorAnswer:
    code: str
    text: str
    problems: Sequence[Problem] = ()
    retryable: bool = False
    wait_s: int | None = None


_TOO_SLOW = ErrorAnswer("too_slow", "a part of the server did not answer in time: try again", retryable=True)
_BY_CLASS: tuple[tuple[type[Exception], ErrorAnswer], ...] = (
    (IdConflict, ErrorAnswer("id_conflict", "this message id is already used in another chat")),
    (StorageFull, ErrorAnswer("storage_full", "no space is left: nothing was stored; try again later", retryable=True)),
    (TooManyChats, ErrorAnswer("too_many_chats", "you have as many chats as one user may have")),
    (ChatBusy, ErrorAnswer("busy", "the chat has too much to do: try again a little later", retryable=True)),
    (ActorTooSlow, _TOO_SLOW),
    (trio.TooSlowError, _TOO_SLOW),
    (ActorStopped, ErrorAnswer("unavailable", "a part of the server is stopped: try again later", retryable=True)),
)
_INTERNAL = ErrorAnswer("internal", "the server failed at this; it was logged", retryable=True)


def refusal_of(error: Exception) -> ErrorAnswer:
    """What a client is told; an unexpected exception is logged (class and place only) and ``internal``."""
    match error:
        case OperationError(code=code, problems=problems):
            return ErrorAnswer(code, "; ".join(map(str, problems)) or str(error), problems)
        case BadValue(problems=problems):
            return ErrorAnswer("bad_args", str(error), problems)
        case InvalidName():
            return ErrorAnswer("bad_chat", str(error))
        case TooMuchToday(code=code, wait_s=wait_s):
            # Not retryable: a client that repeats by itself would wait for hours without a word.
            return ErrorAnswer(code, str(error), wait_s=wait_s)
        case ProtocolError(code=code) | AttachmentRefused(code=code):
            return ErrorAnswer(code, str(error))
        case StorageError(code=code) if code:
            return ErrorAnswer(code, str(error))
    for cls, known in _BY_CLASS:
        if isinstance(error, cls):
            return known
    log.error("request_failed", error=error_class(error), where=where(error))
    return ErrorAnswer("storage", str(error), retryable=True) if isinstance(error, StorageError) else _INTERNAL


def error_frame(error: Exception, answered: object = None) -> Error:
    """The error frame of an exception, with the marks (ref, id, chat) of the frame that it answers."""
    told = refusal_of(error)
    frame = Error(
        code=told.code,
        message=told.text,
        errors=[FieldError(field=each.path, message=each.message) for each in told.problems] or None,
        retryable=told.retryable,
    )
    return attrs.evolve(frame, **error.marks) if isinstance(error, ProtocolError) else with_marks(frame, answered)


def with_marks(error: Error, answered: object) -> Error:
    ref, own, chat = (getattr(answered, name, None) for name in ("ref", "id", "chat"))
    return attrs.evolve(error, ref=ref, id=own, chat=chat)
