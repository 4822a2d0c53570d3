"""One thing that is remembered, whole. The answer holds what was said, so it never goes into a log."""

from typing import TYPE_CHECKING, Annotated, Any, cast

import attrs

from klaw.convert import Bounds
from klaw.domain.fact import FactId
from klaw.errors import NoSuchFact
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Lines
from klaw.operations.memory import facts, topics
from klaw.operations.memory import people as of_people
from klaw.operations.why import find_message

if TYPE_CHECKING:
    from klaw.operations.answers.memory import FetchAnswer

NOUN = op.Noun("fetch", "show a message with what was said around it, a topic, a fact or a person")

MOST_AROUND = 20


@attrs.frozen(kw_only=True)
class Fetch(op.OfUser):
    what: op.Name = op.required(
        "a message's id or main#12, topic:ID, fact:ID, person:ID or person:NAME", metavar="WHAT", id_of="message"
    )
    around: Annotated[int, Bounds(0, MOST_AROUND)] = op.argument(
        "of a message: how many before and after it (default: 3)", default=3, metavar="N"
    )


def _lines(answer: dict[str, Any]) -> Lines:
    match answer["kind"]:
        case "fact":
            return facts.fact_lines(answer)
        case "person":
            return of_people.with_topics(answer)
        case "topic":
            return topics.lines(answer)
    return [f"#{each['seq']} {each['role']}: {each['content']}" for each in answer["messages"]]


@NOUN.operation("fetch", Fetch, cli="", show=_lines, mcp="fetch")
async def fetch(asked: Fetch, caller: Caller, parts: Parts) -> "FetchAnswer":
    """Show a message with what was said around it, a topic with its messages, a fact or a person.

    What search, list, topics and people only name.
    """
    from klaw.store.kinds import facts as stored
    from klaw.store.kinds import messages

    kind, _, named = asked.what.partition(":")
    told: Any
    match kind if named else "":
        case "topic":
            told = await topics.show(topics.TopicsShow(topic=named), caller, parts)
            return cast("FetchAnswer", {"kind": kind, **told})
        case "person":
            told = await of_people.show(of_people.OfPerson(person=named), caller, parts)
            return cast("FetchAnswer", {"kind": kind, **told})
        case "fact":
            fact = await parts.readers.run(stored.get, caller.user, FactId(named))
            if fact is None:
                raise NoSuchFact
            return {"kind": kind, "fact": fact}
    found = await find_message(parts.readers, asked.what, None, caller.user, field="what")
    first, end = found.seq - asked.around - 1, found.seq + asked.around + 1
    said = await parts.readers.run(messages.dialogue, found.chat, first, end, 2 * asked.around + 1)
    shown = {each.seq: each for each in (*said, found)}  # a command is no dialogue
    return {
        "kind": "message",
        "chat": found.chat,
        "seq": found.seq,
        "messages": [topics.said(shown[seq]) for seq in sorted(shown)],
    }
