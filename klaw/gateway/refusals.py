"""What a client is told of an exception: one mapping for the WebSocket, the HTTP API and the admin socket. The texts
are fixed here, or are those of Klaw's own errors, which never quote content."""

from collections.abc import Sequence

import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
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
from klaw.wire.frames import Error, FieldError

log = structlog.get_logger("klaw.gateway")


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
