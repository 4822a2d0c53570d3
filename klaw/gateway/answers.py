"""From values of the domain to frames: stored messages, events, status, errors. What to ask is ``requests``.

Texts of errors are fixed here, so that none can quote content.
"""

from collections.abc import Mapping
from typing import Any

import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.config.schema import AttachmentsConfig, GatewayConfig
from klaw.domain import context_used
from klaw.domain.attachment import MAX_FILES, Attachment, files_of
from klaw.domain.events import (
    Approval,
    ApprovalAsked,
    ApprovalEnded,
    Progressed,
    Step,
    TextStreamed,
    ToolUsed,
    TurnEnded,
    TurnStarted,
)
from klaw.domain.message import Kind, Message
from klaw.domain.names import name_of
from klaw.domain.turn import TurnRecord, TurnStatus
from klaw.errors import (
    ActorStopped,
    ActorTooSlow,
    AttachmentRefused,
    ChatBusy,
    IdConflict,
    InvalidName,
    ProtocolError,
    StorageFull,
    TooManyChats,
    TooMuchToday,
)
from klaw.wire import frames
from klaw.wire.codec import encode
from klaw.wire.files import File
from klaw.wire.frames import (
    HISTORY_LIMIT,
    Call,
    ChatMessage,
    Degraded,
    Error,
    Limits,
    Receipt,
    Status,
    StoredMessage,
    Tool,
)

HISTORY_CHARS = 500_000
"""A page of history is cut at this many characters of content, so that its frame stays near 1 MiB."""


class StoredOnce:
    """A stored message on its way to every watcher, encoded at most once."""

    __slots__ = ("_text", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The ``message`` frame."""
        if self._text is None:
            self._text = message_text(self.message, replayed=False)
        return self._text


def message_text(message: Message, *, replayed: bool) -> str:
    """The ``message`` frame of a stored message, encoded."""
    return encode(ChatMessage(**_told(message), chat=name_of(message.chat), replayed=replayed or None))


def in_history(message: Message) -> StoredMessage:
    return StoredMessage(**_told(message))


def _told(message: Message) -> dict[str, Any]:
    """What a client is told of a stored message, wherever it stands."""
    texts = {name: message.metadata.get(name) for name in ("turn", "task")}
    return {
        "seq": message.seq,
        "id": message.id,
        "role": message.role,
        "kind": message.type,
        "content": message.content,
        "created_at": message.created_at,
        "files": [frame_of(each) for each in files_of(message.metadata)] or None,
        "calls": _calls(message) or None,
        "context_used": context_used.read(message.metadata),
        **{name: text for name, text in texts.items() if isinstance(text, str)},
    }


def _calls(message: Message) -> list[Call]:
    told = message.metadata
    match message.type:
        case Kind.TOOL_CALL:
            calls = told.get("calls", ())
            return [Call(id=each["id"], name=each["name"], arguments=str(each["arguments"])) for each in calls]
        case Kind.TOOL_RESULT:
            return [Call(id=str(told.get("call")), name=str(told.get("name")), failed=bool(told.get("error")))]
        case _:
            return []


def frame_of(file: Attachment) -> File:
    return File(sha256=file.sha256, name=file.name, type=file.type, bytes=file.bytes)


def event_texts(
    event: TurnStarted | Progressed | TextStreamed | ToolUsed | ApprovalAsked | ApprovalEnded | TurnEnded,
) -> list[str]:
    """The frames of an event, encoded; none for streamed text, which the outbox joins and encodes itself."""
    chat = name_of(event.chat)
    match event:
        case TurnStarted(turn=turn):
            return [encode(Status(chat=chat, state="thinking", turn=turn))]
        case Progressed(turn=turn, step=Step.WAITING):
            return [encode(Status(chat=chat, state="waiting", turn=turn))]
        case Progressed(turn=turn, step=Step.NOTHING):
            return [encode(Status(chat=chat, state="idle", turn=turn))]
        case Progressed(turn=turn, step=step):
            return [encode(Status(chat=chat, state="thinking", turn=turn, doing=step))]
        case ToolUsed(turn=turn, call=call, name=name, state=state):
            return [encode(Tool(chat=chat, turn=turn, call=call, name=name, state=state, what=event.what or None))]
        case ApprovalAsked(approval=approval):
            return [approval_text(approval)]
        case ApprovalEnded(id=approval_id, outcome=outcome):
            return [encode(frames.ApprovalEnded(chat=chat, id=approval_id, outcome=outcome))]
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
    """The ``approval`` frame of an open question, encoded."""
    return encode(
        frames.Approval(
            chat=name_of(approval.chat),
            id=approval.id,
            tool=approval.tool,
            what=approval.what,
            until=approval.until,
            turn=approval.turn,
        )
    )


def chat_status(name: str, status: Mapping[str, Any]) -> Status:
    """What a chat does now, as ``ChatDirectory.chat_status`` or ``unanswered`` says."""
    details = {key: value for key, value in status.items() if key not in ("state", "turn", "doing")}
    turn, doing = status.get("turn"), status.get("doing")
    return Status(chat=name, state=str(status["state"]), turn=turn, doing=doing, details=details or None)


def at_rest(status: Mapping[str, Any], unanswered: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The status of a chat that does nothing is that something has no answer, if that is so."""
    return unanswered if unanswered is not None and status["state"] in ("idle", "failed") else status


def degraded(health: Mapping[str, Any]) -> list[Degraded]:
    """What does not work as it should, as ``ChatDirectory.health`` says."""
    return [Degraded(code=code, text=str(text)) for code, text in sorted(health.items())]


def limits(gateway: GatewayConfig, files: AttachmentsConfig) -> Limits:
    return Limits(
        max_frame_bytes=gateway.max_frame_bytes,
        messages_per_second=gateway.messages_per_second,
        burst=gateway.burst,
        history=HISTORY_LIMIT,
        max_file_bytes=files.max_file_bytes,
        max_message_file_bytes=files.max_message_bytes,
        max_files=MAX_FILES,
    )


def receipt(name: str, record: TurnRecord, ref: str | None) -> Receipt:
    return Receipt(
        chat=name,
        turn=record.id,
        status=record.status,
        model=record.model,
        segment=record.segment,
        first_seq=record.first_seq,
        last_seq=record.last_seq,
        started_at=record.started_at,
        ended_at=record.ended_at,
        receipt=record.receipt,
        usage=record.usage,
        timings=record.timings,
        error=record.error,
        ref=ref,
    )


log = structlog.get_logger("klaw.gateway")

_REFUSALS: tuple[tuple[type[Exception], str, str, bool], ...] = (
    (IdConflict, "id_conflict", "this message id is already used in another chat", False),
    (StorageFull, "storage_full", "the message was not stored: no space is left; send it again later", True),
    (TooManyChats, "too_many_chats", "you have as many chats as one user may have", False),
    (ChatBusy, "busy", "the chat has too much to do; send it again a little later", True),
    (ActorTooSlow, "unavailable", "the server did not answer in time; send it again", True),
    (ActorStopped, "unavailable", "this part of the server is not running now; send it again later", True),
)


def refusal(error: Exception) -> Error:
    """The error frame for an exception; what is not expected is logged (class and place only) and ``internal``."""
    if isinstance(error, ProtocolError):
        return attrs.evolve(Error(code=error.code, message=str(error)), **error.marks)
    if isinstance(error, InvalidName):
        return Error(code="bad_chat", message=str(error))
    if isinstance(error, AttachmentRefused):
        return Error(code=error.code, message=str(error))
    if isinstance(error, TooMuchToday):  # clients would wait for hours without a word with one that they may send again
        return Error(code=error.code, message=str(error))
    for cls, code, message, retryable in _REFUSALS:
        if isinstance(error, cls):
            return Error(code=code, message=message, retryable=retryable)
    log.error("request_failed", error=error_class(error), where=where(error))
    return Error(code="internal", message="the server failed at this; it was logged", retryable=True)


def with_marks(error: Error, frame: object) -> Error:
    """The error frame with the marks of the frame that it answers."""
    return attrs.evolve(
        error, ref=getattr(frame, "ref", None), id=getattr(frame, "id", None), chat=getattr(frame, "chat", None)
    )
