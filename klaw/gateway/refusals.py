"""Which error frame an exception becomes. Texts are fixed here, so that none can quote content."""

import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.chats.service import ChatBusy, TooManyChats
from klaw.domain.names import InvalidName
from klaw.errors import ActorStopped, ActorTooSlow, IdConflict, ProtocolError, StorageFull
from klaw.wire.frames import Error

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
