"""Where a message lives now and what would bring it back; what an answer was made from, and what its turn did with one
message. The answers may quote what was said, so they never go into a log."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
from attrs.filters import exclude

from klaw.domain.names import LOCAL_USER, ChatId, UserId
from klaw.domain.text import plural
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, HasReaders
from klaw.operations.lines import Line, Lines, Table, minute

if TYPE_CHECKING:
    from klaw.domain.message import Message
    from klaw.operations.answers import TurnAnswer, WhyAnswer
    from klaw.operations.explain.message import LocatedMessage

NOUN = op.Noun("why", "tell where a message is and what brings it back (docs/receipts.md)")
RECEIPT = op.Noun("receipt", "show what an answer was made from (docs/receipts.md)")

TURNS = 20
"""Newest turns of the chat that are looked through."""
SHOWN_TURNS = 5
_UNKNOWN = (
    "there is no such message; a message is named by its id, or by chat and number like main#12; both stand in"
    " `klaw receipt` and in the chat's logs"
)


@attrs.frozen(kw_only=True)
class Why:
    message: op.Name = op.required("its id, or its chat and number: main#12, anna:main#12", id_of="message")
    chat: op.ChatName | None = op.argument("the message's chat; MESSAGE may then be its number alone", metavar="NAME")
    user: op.UserName | None = op.argument("whose message (default: any user's; with a chat: local)", metavar="NAME")
    query: op.Query | None = op.argument("also test whether this question would recall it", metavar="TEXT")


_PLACES = {
    "pending": "in the next request: it waits for its answer",
    "window": "in the next request, in full",
    "summary": "in a summary of the next request; no search finds it",
    "auto_rag": "in reach of Auto-RAG: recalled when a question is about it",
    "earlier_segment": "before the last /new: found by search, not by Auto-RAG",
    "disabled": "found by search; Auto-RAG is off",
    "unwanted": "found by search; you said that it is never to be recalled",
    "not_searched": "in the history only, by design",
    "wordless": "in the history only: it holds no word",
    "nowhere": "NOWHERE: no search finds it",
}
_NO_VECTOR = {
    "not_searched": "not searched by design",
    "too_short": "shorter than autoRag.minMessageTokens",
    "disabled": "embedding.enabled is false",
    "waiting": "it waits for one",
    "lost": "it got lost",
}
_TURNS = {
    "question": "was its question",
    "window": "had it in full",
    "recalled": "recalled it",
    "cut": "found it and cut it",
    "summary": "had it in a summary",
    "topic": "showed it in a topic",
    "not_found": "did not find it",
    "other_segment": "was on the other side of a fresh start",
    "guard_all_in_context": "needed no recall",
    "guard_disabled": "had recall off",
    "no_context": "had no context",
    "later": "had answered before it",
}


def lines(answer: dict[str, Any]) -> Lines:
    message, text = answer["message"], answer["full_text"]
    long = f"{plural(message['characters'], 'character')}, {plural(message['tokens'], 'token')}"
    kind = f"{message['role']}, {message['type']}, {long}"
    rows = [
        ["message", f"{message['chat']}#{message['seq']}, id {message['id']}"],
        ["said", f"{minute(message['created_at'])}, {kind}"],
        ["log", message["log"]],
        ["part", _segment(answer["segment"])],
        ["place", _PLACES.get(answer["place"], answer["place"])],
        ["shown", _window(answer["window"])],
        ["summary", _summary(answer["summary"])],
        ["topic", _topic(answer["topic"])],
        ["vector", _vector(answer["vector"])],
        ["full text", f"yes, {plural(text['words'], 'word')}" if text["there"] else "no"],
        ["answers", _turns(answer["turns"])],
    ]
    query = ["", f"query  {_query(answer['query'])}"] if answer["query"] is not None else []
    return [Table(rows), *_recalls(answer["turns"]), *query, "", *answer["advice"]]


def _summary(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "none yet"
    held = f"in summary {summary['number']}, of messages {summary['first_seq']} to {summary['last_seq']}"
    if summary["shown"]:
        return f"{held}, which the next request has"
    return f"{held}, which " + ("made room for newer ones" if summary["state"] == "evicted" else "is not shown now")


def _topic(topic: dict[str, Any] | None) -> str:
    if topic is None:
        return "none yet"
    general, messages = ", general conversation" if topic["general"] else "", plural(topic["messages"], "message")
    return f"{topic['id']}, {messages} from {minute(topic['first_at'])} to {minute(topic['last_at'])}{general}"


def _segment(segment: dict[str, Any]) -> str:
    if segment["current"]:
        return "the current one"
    return f"ended by a fresh start, /new (message {segment['ended_by_seq']}, {minute(segment['ended_at'])})"


def _window(window: dict[str, Any]) -> str:
    if window["pending"]:
        return "it is the question"
    if window["first_seq"] is None:
        return "empty"
    where = "yes" if window["there"] else "no"
    return f"{where}: the next request shows messages {window['first_seq']} to {window['last_seq']}"


def _vector(vector: dict[str, Any]) -> str:
    if vector["there"]:
        return f"yes, {vector['model']}"
    return f"no: {_NO_VECTOR.get(vector['reason'], vector['reason'])}"


def _turns(turns: list[dict[str, Any]]) -> str:
    counts = Counter(each["as"] for each in turns)
    said = [f"{count} {_did(code, count)}" for code, count in counts.most_common()]
    return f"of the last {len(turns)} since then: {', '.join(said)}" if said else "none since then"


def _did(code: str, count: int) -> str:
    said = _TURNS.get(code, code)
    return f"were {said.removeprefix('was ')}" if count > 1 and said.startswith("was ") else said


def _recalls(turns: list[dict[str, Any]]) -> list[Line]:
    found = [each for each in turns if "candidate" in each]
    if not found:
        return []
    columns = ("vector_rank", "distance", "text_rank", "score", "decision")
    rows = [["answer", "ended", "vector", "distance", "text", "score", "decision"]]
    for each in found[:SHOWN_TURNS]:
        cells = (each["candidate"].get(column) for column in columns)
        rows.append([each["turn"], minute(each["ended_at"]), *("-" if cell is None else str(cell) for cell in cells)])
    more = len(found) - SHOWN_TURNS
    return ["", Table(rows), *([f"and {more} more; --json has all"] if more > 0 else [])]


def _query(query: dict[str, Any]) -> str:
    words = f"{query['content_words']} content words"
    degraded = f"; missing: {', '.join(query['degraded'])}" if query["degraded"] else ""
    if not query["in_scope"]:
        return f"would not look there: it is outside of Auto-RAG's reach now ({words}{degraded})"
    if query["candidate"] is None:
        return f"would not find it among {query['candidates']} candidates ({words}{degraded})"
    what = "would recall it" if query["recalled"] else "would find it and cut it"
    decision = query["candidate"]["decision"]
    return f"{what}: place {query['place']} of {query['candidates']}, {decision} ({words}{degraded})"


# -- which message ----------------------------------------------------------------------------------------------------


async def find_message(
    parts: HasReaders, named: str, chat: str | None, user: UserId | None, *, field: str = "message"
) -> "Message":
    """The message that is named by its id, or its chat and number; with ``chat`` (name or id) also by its number alone.
    ``user``: whose; None: any user's, and with a chat's name the local user's. Raises OperationError:
    ``unknown_message``; ``bad_args`` for what names no message, or several users' ones."""
    found = await parts.readers.run(stored.whereabouts.find_message, _target(named, chat, user, field))
    if not found:
        raise op.OperationError("unknown_message", _UNKNOWN)
    if len(found) > 1:
        several = "is required, because several users have a message of this id"
        raise op.OperationError("bad_args", several, field="user")
    return found[0]


def _target(named: str, chat: str | None, user: UserId | None, field: str) -> "stored.whereabouts.Target":
    def known(text: str | None, field: str) -> ChatId | None:
        return op.chat_of(text, user or UserId(LOCAL_USER), any_user=user is None, field=field)

    where, mark, number = named.rpartition("#")
    given, of_message = known(chat, "chat"), known(where or None, field)
    if given is not None and of_message not in (None, given):
        raise op.OperationError("bad_args", "names another chat than --chat", field=field)
    given = given or of_message
    if mark or (given is not None and number.isdecimal()):
        if not number.isdecimal() or not 1 <= int(number) < 1 << 62:
            raise op.OperationError("bad_args", "after # stands the number of a message: 1, 2, 3 …", field=field)
        return stored.whereabouts.Target(seq=int(number), chat=given)
    return stored.whereabouts.Target(id=named, chat=given, user=user)


@NOUN.operation("why", Why, cli="", show=lines, offline=True, mcp="why")
async def why(asked: Why, caller: Caller, parts: DatabaseParts) -> "WhyAnswer":
    """Tell where a message is now, and what would bring it back into a request.

    For the question why Klaw did or did not remember something that was said: search tells the message's chat and
    number; with query it is also tested whether that question would recall it.
    """
    from klaw.agent.workspace import Workspace
    from klaw.context.pinned_facts import standing
    from klaw.operations.explain.message import LocatedMessage, describe, plan, words_of

    whose = caller.user if asked.user is not None or not caller.operator else None
    message = await find_message(parts, asked.message, asked.chat, whose)
    fixed = await Workspace(parts.paths.workspace, parts.paths.data_dir).fetch(message.user)
    kept = await parts.readers.run(stored.facts.standing, message.user)
    fixed = attrs.evolve(fixed, core_memory=standing(fixed.core_memory, kept).text)
    how: dict[str, Any] = {"window_rows": parts.config.window_rows, "summarised": parts.config.summarises}
    about = await parts.readers.run(stored.whereabouts.locate, message, words_of(message), turns_each=TURNS, **how)
    if about is None:  # it is gone meanwhile
        raise op.OperationError("unknown_message", _UNKNOWN)
    planned = plan(about, parts.config, fixed)
    found = LocatedMessage(message=message, about=about, config=parts.config, planned=planned)
    return describe(found, await _tried(found, asked.query, parts) if asked.query is not None else None)


async def _tried(found: "LocatedMessage", query: str, parts: DatabaseParts) -> dict[str, Any]:
    """What Auto-RAG would make of the message for a question that was asked now, without any text."""
    missing = await parts.embedder.prepare()
    scope, message = found.scope, found.message
    recalled = await parts.recall.search(query, scope)
    of_it = [(at, each) for at, each in enumerate(recalled.candidates, 1) if each.message.rowid == message.rowid]
    place, candidate = of_it[0] if of_it else (None, None)
    shown = candidate and attrs.asdict(candidate, recurse=False, filter=exclude("message", "text"))
    return {
        "in_scope": scope.first_seq <= message.seq < scope.end_seq,
        "content_words": recalled.query_words,
        "degraded": [*([missing] if missing else []), *recalled.degraded],
        "candidates": len(recalled.candidates),
        "recalled": candidate is not None and candidate.passed,
        "place": place,
        "candidate": shown,
    }


# -- what an answer was made from --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Receipt:
    turn: op.Name | None = op.argument(
        "id of the answer (default: the newest)", positional=True, id_of="turn", metavar="ID"
    )
    chat: op.ChatName | None = op.argument("the newest answer of this chat", metavar="NAME")
    user: op.UserName | None = op.argument(
        "the newest answer of this user; with --chat: whose chat (default: local)", metavar="NAME"
    )
    why: op.Name | None = op.argument(
        "tell why this message was recalled or not: its number, main#12, or its id", metavar="MESSAGE", id_of="message"
    )
    texts: bool = op.argument("also what its lines quote: messages, facts, topics", default=False, hidden=True)


def _receipt(answer: dict[str, Any]) -> Lines:
    from klaw.operations.explain.receipt_text import lines, why_lines

    return why_lines(answer) if "why" in answer else lines(answer)


@RECEIPT.operation("receipt", Receipt, cli="", show=_receipt, offline=True)
async def receipt(asked: Receipt, caller: Caller, parts: DatabaseParts) -> "TurnAnswer":
    """Show what an answer was made from: context, recall, tools and usage."""
    from klaw.operations.explain.message import explain_message, with_search
    from klaw.operations.explain.receipt_text import tell_reasons

    if asked.turn is not None and (asked.chat is not None or asked.user is not None):
        raise op.OperationError("bad_args", "give a turn, or a chat or user whose newest turn is meant", field="turn")
    whose = caller.user if asked.user is not None or not caller.operator else None
    chat = op.chat_of(asked.chat, caller.user, any_user=whose is None)
    turn = await parts.readers.run(stored.turns.find, asked.turn, chat, whose)
    if turn is None:
        raise op.OperationError("unknown_turn", "there is no such answer")
    answer = attrs.asdict(turn)
    if asked.texts:
        answer["texts"] = await parts.readers.run(stored.whereabouts.quoted, turn)
        tell_reasons(answer["receipt"])
    if asked.why is None:
        return answer
    of_chat = turn.chat if asked.why.isdecimal() else None
    of_user = None if ":" in asked.why and caller.operator else turn.user
    message = await find_message(parts, asked.why, of_chat, of_user, field="why")
    told = explain_message(turn, message)
    if told["as"] == "not_found":  # the receipt itself does not say what became of it
        told = await with_search(told, message, turn, parts)
    return {**answer, "why": told}
