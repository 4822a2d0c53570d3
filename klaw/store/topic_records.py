"""Changes of topics as JSON values of the memory journal. Pure.

The journal tells which messages are whose, so that a database made from the logs has the same topics. Row ids are
written as ranges: those of a conversation are mostly neighbours.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import TopicId
from klaw.store.fields import optional_whole, text, whole, yes_or_no

MAX_MEMBERS = 1_000_000

TopicOp: TypeAlias = Literal["put", "merge", "mark", "remove", "rebuild", "undo"]
"""put: topics are stored, new ones or in place of others. merge: one takes in others. mark: a step of the archivist is
done. remove: its messages have no topic any more. rebuild: likewise of several. undo: topics are what they were."""
_WHOLE: tuple[TopicOp, ...] = ("put", "merge", "rebuild", "undo")
"""With a chat, topics and ended ones."""
Author: TypeAlias = Literal["archivist", "person"]
"""Who decided on a change."""


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
    """With put, merge, rebuild and undo; so are those that follow."""
    topics: tuple[TopicState, ...] = ()
    ended: tuple[TopicId, ...] = ()
    """Topics that are gone by it."""
    consolidated: bool = False
    facts: bool = False
    """With mark: which steps are done."""
    by: Author | None = None
    """Whose change it is; None in lines of before there was a history of changes, which are no part of it."""
    undoes: int | None = None
    """With undo: number of the change that is taken back."""


def topic_value(entry: TopicEntry) -> dict[str, Any] | None:
    """What the journal's line has beside the op, whose it is and the id."""
    match entry.op:
        case "remove":
            return None
        case "mark":
            return {"consolidated": entry.consolidated, "facts": entry.facts}
        case _:
            value: dict[str, Any] = {
                "chat_id": entry.chat,
                "topics": [state_value(each) for each in entry.topics],
                "ended": list(entry.ended),
            }
            if entry.by is not None:
                value["by"] = entry.by
            if entry.undoes is not None:
                value["undoes"] = entry.undoes
            return value


def state_value(state: TopicState) -> dict[str, Any]:
    """A topic as a JSON value."""
    return {
        "id": state.id,
        "summary": state.summary,
        "general": state.general,
        "members": ranges(state.members),
        "consolidated": state.consolidated,
        "facts": state.facts,
    }


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
    if op not in _WHOLE:
        raise ValueError("op is none of topics")
    by = value.get("by")
    if by not in (None, "archivist", "person"):
        raise ValueError("by is neither archivist nor person")
    return attrs.evolve(
        entry,
        chat=ChatId(text(value["chat_id"])),
        topics=tuple(read_state(each) for each in value["topics"]),
        ended=tuple(TopicId(whole(each)) for each in value["ended"]),
        by=by,
        undoes=optional_whole(value.get("undoes")),
    )


def read_state(value: dict[str, Any]) -> TopicState:
    """The topic of a JSON value. Raises KeyError, TypeError or ValueError."""
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
