"""What a run says in a chat: its delivered messages and its notice, whose ids follow from the run.

Such an id is the same however often the writing is tried, so a repetition is recognised; after a crash the messages of
a run are found by it. No client can choose one: ``/`` is not allowed in a client's id.
"""

from collections.abc import Mapping
from types import MappingProxyType

from klaw.domain import tokens
from klaw.domain.message import Kind, NewMessage, Role
from klaw.domain.names import ChatId
from klaw.domain.task import Run

SCHEDULED_ORIGIN = "scheduled"
NOTICE_ORIGIN = "notice"
_CHANNEL = "klaw"


def delivery_id(run: str, number: int) -> str:
    """Id of the message that is a run's 1st, 2nd … delivery."""
    return f"{run}/{number}"


def notice_id(run: str) -> str:
    """Id of the message that tells a chat how a run ended, or why it was not begun."""
    return f"{run}/notice"


def delivery_message(run: Run, number: int, chat: ChatId, text: str, created_at: str) -> NewMessage:
    """A result for the run's chat: an assistant message of origin ``scheduled``."""
    return _message(run, delivery_id(run.id, number), SCHEDULED_ORIGIN, chat, text, created_at)


def notice_message(run: Run, chat: ChatId, text: str, created_at: str) -> NewMessage:
    """What a chat is told of the end of a run; at most one for each run.

    It says how the run ended: a process that dies between this message and the run's own record leaves no other trace.
    """
    how = {"status": run.status.value} | ({} if run.error is None else {"error": run.error})
    return _message(run, notice_id(run.id), NOTICE_ORIGIN, chat, text, created_at, how)


def _message(
    run: Run,
    message_id: str,
    origin: str,
    chat: ChatId,
    text: str,
    created_at: str,
    more: Mapping[str, str] = MappingProxyType({}),
) -> NewMessage:
    return NewMessage(
        id=message_id,
        chat=chat,
        user=run.user,
        channel=_CHANNEL,
        role=Role.ASSISTANT,
        type=Kind.SCHEDULED,
        content=text,
        tokens=tokens.estimate(text),
        created_at=created_at,
        metadata={"origin": origin, "task": run.task, "run": run.id, **more},
    )
