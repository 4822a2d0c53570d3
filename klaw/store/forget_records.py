"""What was forgotten, as entries of the memory journal: numbers and ids only, never the text. Pure."""

from collections.abc import Mapping
from typing import Any

import attrs

from klaw.domain.fact import FactId
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName, task_name
from klaw.domain.topic import TopicId
from klaw.store.fields import text, whole, yes_or_no
from klaw.store.summary_records import read_key, summary_key
from klaw.store.topic_records import members, ranges

FORGET = "forget"


@attrs.frozen(kw_only=True)
class ForgetEntry:
    """One forgetting, or (``done``) the note that an earlier one is finished in every log."""

    entry: int
    time: str
    user: UserId
    messages: tuple[int, ...] = ()
    """Row ids, ascending; of what was made of them, too."""
    asked: tuple[int, ...] = ()
    """Row ids of those that were named: their words are looked for elsewhere."""
    facts: tuple[FactId, ...] = ()
    topics: tuple[TopicId, ...] = ()
    """Made of the messages; they end."""
    summaries: tuple[tuple[ChatId, int], ...] = ()
    """Chat and number of those that were made of the messages."""
    people: tuple[PersonId, ...] = ()
    past: tuple[int, ...] = ()
    """Entries of the memory journal by which others once had names of these people: they say what those were last."""
    turns: tuple[str, ...] = ()
    """Whose receipts name these people, and are to do so no more."""
    runs: tuple[str, ...] = ()
    """Likewise."""
    ran: tuple[str, ...] = ()
    """Runs that go: nothing but what they cost is left of them."""
    tasks: tuple[TaskName, ...] = ()
    """Made of the messages; they were removed with them."""
    core: bool = False
    """Whether something of it was in core memory: of what that was before nothing stays."""
    done: int | None = None
    """Number of the entry that is finished."""


@attrs.frozen(kw_only=True)
class Lines:
    """What lines of logs are to say, as the database does. Content: never logged."""

    people: Mapping[int, Any] = attrs.field(factory=dict)
    """Values of people, by entries of the memory journal."""
    receipts: Mapping[str, Any] = attrs.field(factory=dict)
    """By turn."""
    runs: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """Texts, details and ``change`` of the last state, by run."""


@attrs.frozen(kw_only=True)
class Forgot:
    """What a forgetting did in the database, and what is left to do in the logs."""

    entry: ForgetEntry
    pieces: tuple[str, ...]
    """Texts to look for. Content: never logged."""
    own: tuple[Message, ...]
    """The messages as they were."""
    lines: Lines = attrs.field(factory=Lines)


def forget_value(entry: ForgetEntry) -> dict[str, Any] | None:
    if entry.done is not None:
        return None
    return {
        "messages": ranges(entry.messages),
        "facts": list(entry.facts),
        "topics": list(entry.topics),
        "summaries": [summary_key(chat, number) for chat, number in entry.summaries],
        "people": list(entry.people),
        "past": list(entry.past),
        "turns": list(entry.turns),
        "runs": list(entry.runs),
        **({"asked": ranges(entry.asked)} if entry.asked != entry.messages else {}),
        **({"ran": list(entry.ran)} if entry.ran else {}),
        **({"tasks": list(entry.tasks)} if entry.tasks else {}),
        **({"core": True} if entry.core else {}),
    }


def read_forget(record: dict[str, Any]) -> ForgetEntry:
    """The entry of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    entry = ForgetEntry(entry=whole(record["entry"]), time=text(record["time"]), user=UserId(text(record["user_id"])))
    if record["op"] == "remove":
        return attrs.evolve(entry, done=whole(int(text(record["key"]))))
    value = record["value"]
    named = members(value["messages"])
    return attrs.evolve(
        entry,
        messages=named,
        asked=members(value["asked"]) if "asked" in value else named,
        ran=tuple(text(each) for each in value.get("ran", [])),
        tasks=tuple(task_name(text(each)) for each in value.get("tasks", [])),
        core=yes_or_no(value.get("core", False)),
        facts=tuple(FactId(text(each)) for each in value["facts"]),
        topics=tuple(TopicId(whole(each)) for each in value["topics"]),
        summaries=tuple(read_key(text(each)) for each in value["summaries"]),
        people=tuple(PersonId(text(each)) for each in value.get("people", [])),  # none in older entries
        past=tuple(whole(each) for each in value.get("past", [])),
        turns=tuple(text(each) for each in value.get("turns", [])),
        runs=tuple(text(each) for each in value.get("runs", [])),
    )
