"""What recall never brings back by itself, though nothing of it is forgotten; and what stored turns would recall under
other settings, for which a running server is not asked and not disturbed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.names import user_id
from klaw.domain.text import cut, one_line, plural
from klaw.domain.topic import TopicId
from klaw.errors import ConfigError, Problem
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Line, Lines, Table, minute
from klaw.operations.why import find_message

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.domain.search import Candidate
    from klaw.memory.recall.replay import TurnReplay

NOUN = op.Noun("recall", "keep messages from being recalled automatically (docs/receipts.md)")
REPLAY = op.Noun("recall-replay", "try what earlier answers recall under other settings (docs/receipts.md)")


@attrs.frozen(kw_only=True)
class OfRecall(op.OfUser):
    what: op.Name = op.required("a message's id or main#12, or topic:ID", metavar="WHAT", id_of="message")


class RecallMarks(TypedDict):
    user: str
    chat: str
    messages: list[int]
    recalled: bool


def _marked(answer: dict[str, Any]) -> Lines:
    text = "can be recalled again" if answer["recalled"] else "never recalled by itself again"
    return [f"{plural(len(answer['messages']), 'message')} of {answer['chat']}: {text}"]


@NOUN.operation("recall_never", OfRecall, cli="never", show=_marked, changes=True)
async def never(asked: OfRecall, caller: Caller, parts: Parts) -> RecallMarks:
    """Never recall a message by itself again, or what a topic holds now; it stays in its chat, and searches find it."""
    return await _mark(asked, caller, parts, recalled=False)


@NOUN.operation("recall_again", OfRecall, cli="again", show=_marked, changes=True)
async def again(asked: OfRecall, caller: Caller, parts: Parts) -> RecallMarks:
    """Let a message, or what a topic holds, be recalled again."""
    return await _mark(asked, caller, parts, recalled=True)


async def _mark(asked: OfRecall, caller: Caller, parts: Parts, *, recalled: bool) -> RecallMarks:
    kind, _, named = asked.what.partition(":")
    if kind == "topic" and named.isdecimal() and len(named) < 19:
        found = await parts.readers.run(stored.topics.read, caller.user, TopicId(int(named)))
        if not found:
            raise op.OperationError("unknown_topic", "there is no such topic", field="what")
    else:
        found = [await find_message(parts, asked.what, None, caller.user, field="what")]
    chat, seqs = found[0].chat, [each.seq for each in found]
    await parts.writer.run(stored.chats.recall, caller.user, chat, seqs, parts.now(), recalled=recalled)
    return {"user": caller.user, "chat": chat, "messages": seqs, "recalled": recalled}


# -- recalling again under other settings -----------------------------------------------------------------------------

SNIPPET_CHARACTERS = 90
_UNCHANGEABLE = {
    "minMessageTokens": "decides which messages get a vector, so trying it takes other vectors, not another search",
    "tokens": "decides what is made of messages and questions, so trying it takes another start, not another search",
}


@attrs.frozen(kw_only=True)
class RecallReplay:
    set: tuple[str, ...] = op.argument(
        "a setting to try, for instance autoRag.topK=5; repeatable", default=attrs.NOTHING, metavar="KEY=VALUE"
    )
    chat: op.Name | None = op.argument("answers of this chat only", metavar="NAME")
    user: Annotated[str, Check(user_id)] | None = op.argument(
        "answers of this user only (with --chat: whose, default: local)", metavar="NAME"
    )
    turn: tuple[str, ...] = op.argument("only these answers, by their ids", default=(), metavar="TURN", words=True)
    last: Annotated[int, Bounds(1, 1_000_000)] = op.argument(
        "the newest answers (default: 100)", default=100, metavar="N"
    )
    text: bool = op.argument("numbers only, nothing of what was said", default=True, option="--no-text")


def lines(answer: dict[str, Any]) -> Lines:
    """The turns that change, or those that were named, and the sums."""
    out: list[Line] = []
    for each in answer["changes"]:
        if each["changed"] or answer["named"]:
            out += [*_turn_lines(each), ""]
    return [*out, *_totals(answer)]


def _turn_lines(each: dict[str, Any]) -> list[str]:
    asked = ", ".join(map(str, each["pending"]))
    out = [f"answer {each['turn']}, {each['chat']}, {minute(each['started_at'])}, message {asked}"]
    if "question" in each:
        out.append(f"  ? {each['question']}")
    for mark, key in (("+", "more"), ("-", "less")):
        for one in each[key]:
            text = f"  {one['text']}" if "text" in one else ""
            out.append(f"  {mark} {one['seq']}  {one['role']}  {minute(one['created_at'])[:10]}{text}")
    before, after = each["before"], each["after"]
    out.append(
        f"  recalled {_seqs(before['kept'])} -> {_seqs(after['kept'])}, tokens {before['tokens']} -> {after['tokens']}"
    )
    for name, side in (("now", before), ("changed", after)):
        if side["degraded"]:
            out.append(f"  missing ({name}): {', '.join(side['degraded'])}")
    return out


def _seqs(seqs: Sequence[int]) -> str:
    return ", ".join(map(str, seqs)) or "nothing"


def _totals(report: dict[str, Any]) -> list[Line]:
    totals = report["totals"]
    before, after = totals["before"], totals["after"]
    names = {
        "recalled": "recalled messages",
        "tokens": "their tokens",
        "turns_with_nothing": "answers with nothing recalled",
        "turns_cut_short": "answers with something missing",
    }
    settings = ", ".join(report["set"])
    out: list[Line] = [f"{plural(totals['turns'], 'answer')} searched again, {totals['changed']} changed by {settings}"]
    rows = [["", "now", "changed"]]
    rows += [[text, str(before[name]), str(after[name])] for name, text in names.items()]
    out.append(Table(rows, right=frozenset({1, 2})))
    if report["not_searched"]:
        out.append(
            f"{plural(report['not_searched'], 'more answer')} had nothing to search: the whole conversation fitted."
        )
    if totals["unlike_then"]:
        out.append(
            f"{plural(totals['unlike_then'], 'answer')} recalled something else at the time: messages got their vectors"
            " later, or the settings or the version were others."
        )
    if report["no_vectors"] is not None:
        from klaw.operations.memory.search import WITHOUT

        out.append(f"note: {WITHOUT[report['no_vectors']]}.")
    return out


@REPLAY.operation("recall_replay", RecallReplay, cli="", show=lines, scope=op.Scope.OPERATOR, offline=True, alone=True)
async def recall_replay(asked: RecallReplay, caller: Caller, parts: DatabaseParts) -> dict[str, Any]:
    """Recall for earlier answers again with other settings, and show what they would recall more or less."""
    from klaw.memory.recall.replay import replay, totals

    changed = read_settings(parts.config, asked.set)
    chat = op.chat_of(asked.chat, caller.user, any_user=asked.user is None)
    if asked.turn:
        recalls = await parts.readers.run(stored.whereabouts.recalls_of, asked.turn)
        if unknown := sorted(set(asked.turn) - {each.turn.id for each in recalls}):
            raise op.OperationError("unknown_turn", f"there is no answer {', '.join(unknown)}")
    else:
        user = caller.user if asked.user is not None else None
        recalls = await parts.readers.run(stored.whereabouts.newest_recalls, chat, user, asked.last)
    if not recalls:
        raise op.OperationError("unknown_turn", "there are no answers yet")
    missing = await parts.embedder.prepare()
    done = [
        await replay(parts.readers, parts.embedder, each, parts.config.auto_rag, changed.auto_rag) for each in recalls
    ]
    replayed = [each for each in done if each is not None]
    return {
        "set": asked.set,
        "named": bool(asked.turn),
        "turns": len(recalls),
        "not_searched": len(recalls) - len(replayed),
        "no_vectors": missing,
        "totals": totals(replayed),
        "changes": [_turn(each, text=asked.text) for each in replayed],
    }


def read_settings(config: "EngineConfig", given: Sequence[str]) -> "EngineConfig":
    """The configuration with the settings to try. Raises OperationError: one is unknown, breaks its rule, or cannot be
    tried."""
    from klaw.config.load import override_section

    keys = (each.partition("=")[0].strip().partition(".")[2] for each in given)
    refused = [Problem(path=f"autoRag.{key}", message=_UNCHANGEABLE[key]) for key in keys if key in _UNCHANGEABLE]
    try:
        changed = override_section(config, "autoRag", given)
    except ConfigError as error:
        refused = [*error.problems]
    if refused:
        raise op.OperationError("bad_args", problems=refused)
    return changed


def _turn(each: "TurnReplay", *, text: bool) -> dict[str, Any]:
    turn = each.stored.turn
    before, after = each.tokens
    return {
        "turn": turn.id,
        "chat": turn.chat,
        "started_at": turn.started_at,
        "pending": turn.receipt["pending"],
        **({"question": cut(one_line(each.stored.question), SNIPPET_CHARACTERS)} if text else {}),
        "changed": each.changed,
        "kept_then": each.kept_then,
        "before": {"kept": sorted(each.kept(each.before)), "tokens": before, "degraded": list(each.before.degraded)},
        "after": {"kept": sorted(each.kept(each.after)), "tokens": after, "degraded": list(each.after.degraded)},
        "more": [_message(one, text=text) for one in each.gained],
        "less": [_message(one, text=text) for one in each.lost],
    }


def _message(candidate: "Candidate", *, text: bool) -> dict[str, Any]:
    message = candidate.message
    return {
        "seq": message.seq,
        "role": message.role.value,
        "created_at": message.created_at,
        "tokens": candidate.tokens,
        **({"text": cut(one_line(candidate.text), SNIPPET_CHARACTERS)} if text else {}),
    }
