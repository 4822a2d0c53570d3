"""Changes of topics as JSON values of the memory journal. Pure.

The journal tells which messages are whose, so that a database made from the logs has the same topics. Row ids are
written as ranges: those of a conversation are mostly neighbours.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import TopicId
from klaw.store.fields import text, whole, yes_or_no

MAX_MEMBERS = 1_000_000

TopicOp: TypeAlias = Literal["put", "merge", "mark", "remove"]
"""put: topics are stored, new ones or in place of others. merge: one takes in another. mark: a step of the archivist is
done. remove: its messages have no topic any more."""


@attrs.frozen(kw_only=True)
class TopicState:
    """One topic as it becomes."""

    id: TopicId
    summary: str
    general: bool
    members: tuple[int, ...]
    """Row ids of messages that join it, ascending; those that it has stay."""
    consolidated: bool
    facts: bool


@attrs.frozen(kw_only=True)
class TopicEntry:
    """One change of a user's topics."""

    entry: int
    time: str
    user: UserId
    op: TopicOp
    id: TopicId
    """The topic; of several the first."""
    chat: ChatId | None = None
    """With put and merge."""
    topics: tuple[TopicState, ...] = ()
    """With put and merge."""
    ended: tuple[TopicId, ...] = ()
    """Topics that are gone by it."""
    consolidated: bool = False
    facts: bool = False
    """With mark: which steps are done."""


def topic_value(entry: TopicEntry) -> dict[str, Any] | None:
    """What the journal's line has beside the op, whose it is and the id."""
    match entry.op:
        case "remove":
            return None
        case "mark":
            return {"consolidated": entry.consolidated, "facts": entry.facts}
        case _:
            topics = [
                {
                    "id": each.id,
                    "summary": each.summary,
                    "general": each.general,
                    "members": ranges(each.members),
                    "consolidated": each.consolidated,
                    "facts": each.facts,
                }
                for each in entry.topics
            ]
            return {"chat_id": entry.chat, "topics": topics, "ended": list(entry.ended)}


def read_topic(record: dict[str, Any]) -> TopicEntry:
    """The change of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    op: TopicOp = record["op"]
    entry = TopicEntry(
        entry=whole(record["entry"]),
        time=text(record["time"]),
        user=UserId(text(record["user_id"])),
        op=op,
        id=TopicId(int(text(record["key"]))),
    )
    if op == "remove":
        return entry
    value = record["value"]
    if op == "mark":
        return attrs.evolve(entry, consolidated=yes_or_no(value["consolidated"]), facts=yes_or_no(value["facts"]))
    if op not in ("put", "merge"):
        raise ValueError("op is none of topics")
    return attrs.evolve(
        entry,
        chat=ChatId(text(value["chat_id"])),
        topics=tuple(_state(each) for each in value["topics"]),
        ended=tuple(TopicId(whole(each)) for each in value["ended"]),
    )


def _state(value: dict[str, Any]) -> TopicState:
    return TopicState(
        id=TopicId(whole(value["id"])),
        summary=text(value["summary"]),
        general=yes_or_no(value["general"]),
        members=members(value["members"]),
        consolidated=yes_or_no(value["consolidated"]),
        facts=yes_or_no(value["facts"]),
    )


def ranges(rowids: Sequence[int]) -> list[list[int]]:
    """Ascending row ids as ranges, first and last."""
    found: list[list[int]] = []
    for rowid in rowids:
        if found and rowid == found[-1][1] + 1:
            found[-1][1] = rowid
        else:
            found.append([rowid, rowid])
    return found


def members(value: Any) -> tuple[int, ...]:
    """The row ids of ranges. Raises TypeError or ValueError."""
    found: list[int] = []
    for first, last in value:
        if not 0 <= whole(last) - whole(first) < MAX_MEMBERS - len(found):
            raise ValueError("a range of row ids is none")
        found += range(first, last + 1)
    return tuple(found)
