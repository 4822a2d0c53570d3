"""What a client is told: frames of stored messages, events, status and exceptions, these alike over all doors. Texts
are fixed here, or those of Klaw's own errors, which never quote content."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import attrs
import structlog
import trio

from klaw import errors
from klaw.actor.failure import error_class, where
from klaw.config.schema import AttachmentsConfig, GatewayConfig
from klaw.domain import events
from klaw.domain.attachment import MAX_FILES
from klaw.domain.message import MOST_ON_PAGE, Message, TurnStatus
from klaw.domain.names import name_of
from klaw.operations.operation import OperationError
from klaw.wire import frames
from klaw.wire.codec import encode

log = structlog.get_logger("klaw.gateway")


_HINT = (
    "Only the built-in model is here, to try Klaw. Connect a larger one: klaw models connect, or System on the page."
)
_HINT_TO_OTHERS = "Only the built-in model is here, to try Klaw. Ask whoever runs this server to connect a larger one."


def hint(*, operator: bool) -> str:
    """What to do while nothing but the built-in model answers."""
    return _HINT if operator else _HINT_TO_OTHERS


class StoredOnce:
    """A stored message on its way to every watcher, encoded at most once."""

    def __init__(self, message: Message) -> None:
        self.message = message

    @cached_property
    def text(self) -> str:
        return message_text(self.message, replayed=False)


def message_text(message: Message, *, replayed: bool) -> str:
    """The ``message`` frame of a stored message, encoded."""
    return encode(frames.MessageFrame.of(message, chat=name_of(message.chat), replayed=replayed or None))


def event_texts(event: events.ChatEvent) -> list[str]:
    """The frames of an event, encoded; none for streamed text, which the outbox joins and encodes itself."""
    return [encode(each) for each in _frames_of(event)]


_STATES = {events.Step.WAITING: "waiting", events.Step.NOTHING: "idle"}
"""A step of any other kind is one of a turn."""


def _frames_of(event: events.ChatEvent) -> list[frames.ServerFrame]:
    chat = name_of(event.chat)
    match event:
        case events.TurnStarted(turn=turn):
            return [frames.Status(chat=chat, state="thinking", turn=turn)]
        case events.StepChanged(turn=turn, step=step):
            state = _STATES.get(step)
            return [frames.Status(chat=chat, state=state or "thinking", turn=turn, doing=None if state else step)]
        case events.ToolUsed(what=what):
            used = {name: getattr(event, name) for name in ("turn", "call", "name", "state", "title", "about")}
            return [frames.Tool(chat=chat, what=what or None, **used)]
        case events.ApprovalAsked(approval=approval):
            return [_approval_frame(approval)]
        case events.ApprovalEnded(id=approval_id, outcome=outcome):
            return [frames.ApprovalEndedFrame(chat=chat, id=approval_id, outcome=outcome)]
        case events.TurnEnded(turn=turn, status=TurnStatus.FAILED as status):
            code, text = event.code or "turn_failed", event.text or "the answer failed"
            error = frames.Error(code=code, message=text, retryable=True, chat=chat, turn=turn)
            return [error, frames.Status(chat=chat, state="failed", turn=turn, ended=status)]
        case events.TurnEnded(turn=turn, status=status, citations_removed=removed):
            details = {"citations_removed": removed} if removed else None
            return [frames.Status(chat=chat, state="idle", turn=turn, ended=status, details=details)]
        case events.VariantShown():
            return [frames.VariantFrame(chat=chat)]
        case events.ChatChanged(title=title):
            return [frames.ChatFrame(chat=chat, title=title)]
        case events.TextStreamed() | events.ThoughtStreamed():
            return []


def approval_text(approval: events.Approval) -> str:
    return encode(_approval_frame(approval))


def _approval_frame(approval: events.Approval) -> frames.ApprovalFrame:
    fields = {name: getattr(approval, name) for name in ("id", "tool", "what", "until", "turn")}
    return frames.ApprovalFrame(chat=name_of(approval.chat), **fields)


def chat_status(name: str, status: Mapping[str, Any]) -> frames.Status:
    details = {key: value for key, value in status.items() if key not in ("state", "turn", "doing")}
    turn, doing = status.get("turn"), status.get("doing")
    return frames.Status(chat=name, state=str(status["state"]), turn=turn, doing=doing, details=details or None)


def degraded(health: Mapping[str, Any]) -> list[frames.DegradedPart]:
    return [frames.DegradedPart(code=code, text=str(text)) for code, text in sorted(health.items())]


def limits(gateway: GatewayConfig, files: AttachmentsConfig) -> frames.ServerLimits:
    return frames.ServerLimits(
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
    problems: Sequence[errors.Problem] = ()
    retryable: bool = False
    wait_s: int | None = None


_passing = partial(ErrorAnswer, retryable=True)
_TOO_SLOW = _passing("too_slow", "a part of the server did not answer in time: try again")
_BY_CLASS: dict[type[Exception], ErrorAnswer] = {
    errors.IdConflict: ErrorAnswer("id_conflict", "this message id is already used in another chat"),
    errors.StorageFull: _passing("storage_full", "no space is left: nothing was stored; try again later"),
    errors.TooManyChats: ErrorAnswer("too_many_chats", "you have as many chats as one user may have"),
    errors.AnswerRunning: ErrorAnswer(
        "answer_running", "an answer is being written: wait for it, or stop it with /stop, and try again"
    ),
    errors.ChatBusy: _passing("busy", "the chat has too much to do: try again a little later"),
    errors.ActorTooSlow: _TOO_SLOW,
    trio.TooSlowError: _TOO_SLOW,
    errors.ActorStopped: _passing("unavailable", "a part of the server is stopped: try again later"),
}
_INTERNAL = _passing("internal", "the server failed at this; it was logged")


def refusal_of(error: Exception) -> ErrorAnswer:
    """What a client is told; an unexpected exception is logged (class and place only) and ``internal``."""
    match error:
        case OperationError(code=code, problems=problems):
            return ErrorAnswer(code, "; ".join(map(str, problems)) or str(error), problems)
        case errors.BadValue(problems=problems):
            return ErrorAnswer("bad_args", str(error), problems)
        case errors.InvalidName():
            return ErrorAnswer("bad_chat", str(error))
        case errors.TooMuchToday(code=code, wait_s=wait_s):
            # Not retryable: a client that repeats by itself would wait for hours without a word.
            return ErrorAnswer(code, str(error), wait_s=wait_s)
        case errors.ProtocolError(code=code) | errors.AttachmentRefused(code=code) | errors.VoiceError(code=code):
            return ErrorAnswer(code, str(error))
        case errors.StorageError(code=code) if code:
            return ErrorAnswer(code, str(error))
    for cls, known in _BY_CLASS.items():
        if isinstance(error, cls):
            return known
    log.error("request_failed", error=error_class(error), where=where(error))
    return _passing("storage", str(error)) if isinstance(error, errors.StorageError) else _INTERNAL


def error_frame(error: Exception, answered: object = None) -> frames.Error:
    """The error frame of an exception, with the marks (ref, id, chat) of the frame that it answers."""
    told = refusal_of(error)
    fields = [frames.FieldError(field=each.path, message=each.message) for each in told.problems] or None
    frame = frames.Error(code=told.code, message=told.text, errors=fields, retryable=told.retryable)
    if isinstance(error, errors.ProtocolError):
        return attrs.evolve(frame, **error.marks)
    return with_marks(frame, answered)


def with_marks(error: frames.Error, answered: object) -> frames.Error:
    ref, own, chat = (getattr(answered, name, None) for name in ("ref", "id", "chat"))
    return attrs.evolve(error, ref=ref, id=own, chat=chat)
