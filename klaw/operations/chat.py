"""One chat, for whoever runs the server: its row, its actor, what waits for an answer, its last turn."""

from typing import TYPE_CHECKING, Any

import attrs

from klaw.domain.names import UserId
from klaw.operations.operation import Name, Noun, OperationError, Scope, chat_of, required

if TYPE_CHECKING:
    from klaw.actor.supervisor import Supervisor
    from klaw.chats.directory import ChatDirectory
    from klaw.memory.coverage import Coverage
    from klaw.store.engine.database import Readers

NOUN = Noun("chat", "show one chat")


@attrs.frozen(kw_only=True)
class OfChat:
    chat: Name = required("its id, USER:NAME, or the name of a chat of the user local")


@NOUN.operation("chat", OfChat, scope=Scope.OPERATOR)
async def show(
    asked: OfChat,
    user: UserId,
    readers: "Readers",
    chats: "ChatDirectory",
    supervisor: "Supervisor",
    coverage: "Coverage",
) -> dict[str, Any]:
    """Show a chat: its row, its actor, what waits for an answer, its last turn."""
    from klaw.store import overview
    from klaw.store.kinds import messages, turns

    chat = chat_of(asked.chat, user, any_user=True)
    assert chat is not None
    session = await readers.run(messages.session, chat)
    if session is None:
        raise OperationError("unknown_chat", "there is no such chat", field="chat")
    last = await readers.run(turns.last, chat)
    actor = next((each for each in supervisor.report() if each.name == f"chat {chat}"), None)
    return {
        "session": session,
        "now": chats.chat_status(chat),
        "pending": await readers.run(overview.count_pending, chat),
        "actor": actor,
        "coverage": coverage.chat(chat),
        "last_turn": last and attrs.asdict(last, filter=lambda field, _value: field.name != "receipt"),
    }
