"""What an answer was made from, and what its turn did with one message. Only with ``texts`` the answer holds what was
said; it never goes into a log."""

from typing import TYPE_CHECKING, Any, cast

import attrs

from klaw.operations.handler import Caller, DatabaseParts
from klaw.operations.lines import Lines
from klaw.operations.operation import ChatName, Name, Noun, OperationError, UserName, argument, chat_of
from klaw.operations.why import find_message

if TYPE_CHECKING:
    from klaw.operations.answers.chats import TurnReceipt

NOUN = Noun("receipt", "show what an answer was made from (docs/receipts.md)")


@attrs.frozen(kw_only=True)
class Receipt:
    turn: Name | None = argument("id of the turn (default: the newest)", positional=True, id_of="turn")
    chat: ChatName | None = argument("the newest turn of this chat", metavar="NAME")
    user: UserName | None = argument(
        "the newest turn of this user; with --chat: whose chat (default: local)", metavar="NAME"
    )
    why: Name | None = argument(
        "tell why this message was recalled or not: its number, main#12, or its id", metavar="MESSAGE", id_of="message"
    )
    texts: bool = argument("also what its lines quote: messages, facts, topics", default=False, hidden=True)


def _lines(answer: dict[str, Any]) -> Lines:
    from klaw.operations.explain.receipt_text import lines, why_lines

    return why_lines(answer) if "why" in answer else lines(answer)


@NOUN.operation("receipt", Receipt, cli="", show=_lines, offline=True)
async def receipt(asked: Receipt, caller: Caller, parts: DatabaseParts) -> "TurnReceipt":
    """Show what an answer was made from: context, recall, tools and usage."""
    from klaw.operations.explain.message_outcome import explain_message, with_search
    from klaw.store.kinds import turns
    from klaw.store.search import whereabouts

    if asked.turn is not None and (asked.chat is not None or asked.user is not None):
        raise OperationError("bad_args", "give a turn, or a chat or user whose newest turn is meant", field="turn")
    whose = caller.user if asked.user is not None or not caller.operator else None
    chat = chat_of(asked.chat, caller.user, any_user=whose is None)
    turn = await parts.readers.run(turns.find, asked.turn, chat, whose)
    if turn is None:
        raise OperationError("unknown_turn", "there is no such turn")
    answer = attrs.asdict(turn)
    if asked.texts:
        answer["texts"] = await parts.readers.run(whereabouts.quoted, turn)
    if asked.why is None:
        return cast("TurnReceipt", answer)
    of_chat = turn.chat if asked.why.isdecimal() else None
    of_user = None if ":" in asked.why and caller.operator else turn.user
    message = await find_message(parts.readers, asked.why, of_chat, of_user, field="why")
    told = explain_message(turn, message)
    if told["as"] == "not_found":  # the receipt itself does not say what became of it
        stored = await parts.readers.run(whereabouts.stored_recall, turn)
        told = await with_search(told, message, stored, parts.readers, parts.embedder, parts.config.auto_rag)
    return cast("TurnReceipt", {**answer, "why": told})
