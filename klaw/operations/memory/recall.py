"""What recall never brings back by itself, though nothing of it is forgotten."""

from typing import TYPE_CHECKING, Any

import attrs

from klaw.domain.text import plural
from klaw.domain.topic import TopicId
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Lines
from klaw.operations.why import find_message

if TYPE_CHECKING:
    from klaw.operations.answers.memory import RecallMarks

NOUN = op.Noun("recall", "keep messages from being recalled automatically (docs/receipts.md)")


@attrs.frozen(kw_only=True)
class OfRecall(op.OfUser):
    what: op.Name = op.required("a message's id or main#12, or topic:ID", metavar="WHAT", id_of="message")


def _lines(answer: dict[str, Any]) -> Lines:
    text = "can be recalled again" if answer["recalled"] else "never recalled by itself again"
    return [f"{plural(len(answer['messages']), 'message')} of {answer['chat']}: {text}"]


@NOUN.operation("recall_never", OfRecall, cli="never", show=_lines, changes=True)
async def never(asked: OfRecall, caller: Caller, parts: Parts) -> "RecallMarks":
    """Never recall a message by itself again, or what a topic holds now; it stays in its chat, and searches find it."""
    return await _mark(asked, caller, parts, recalled=False)


@NOUN.operation("recall_again", OfRecall, cli="again", show=_lines, changes=True)
async def again(asked: OfRecall, caller: Caller, parts: Parts) -> "RecallMarks":
    """Let a message, or what a topic holds, be recalled again."""
    return await _mark(asked, caller, parts, recalled=True)


async def _mark(asked: OfRecall, caller: Caller, parts: Parts, *, recalled: bool) -> "RecallMarks":
    from klaw.actor.clock import iso
    from klaw.store.kinds import chats, topics

    kind, _, named = asked.what.partition(":")
    if kind == "topic" and named.isdecimal() and len(named) < 19:
        found = await parts.readers.run(topics.read, caller.user, TopicId(int(named)))
        if not found:
            raise op.OperationError("unknown_topic", "there is no such topic", field="what")
    else:
        found = [await find_message(parts.readers, asked.what, None, caller.user, field="what")]
    seqs = [each.seq for each in found]
    await parts.writer.run(chats.recall, caller.user, found[0].chat, seqs, iso(parts.clock.now()), recalled=recalled)
    return {"user": caller.user, "chat": found[0].chat, "messages": seqs, "recalled": recalled}
