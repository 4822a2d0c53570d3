"""The memory journal ``memory/<month>.jsonl``: every change of what Klaw keeps on a person's behalf, as JSON. Pure.

A line says what kind of thing was put or removed, whose, and under which key; a put has the whole value. Entries are
numbered over all months and kinds: their order is that of the numbers, whatever the clock did. Other kinds of things
(topics, people) join with a word of their own in ``what``.
"""

from typing import Any, TypeAlias, assert_never

import attrs

from klaw.domain.core_memory import Document
from klaw.domain.fact import Fact, FactId
from klaw.domain.names import ChatId, UserId
from klaw.domain.task import At, Cron, Every, Task, TaskName, Trigger, task_name
from klaw.store.background_records import (
    DAY,
    SPENT,
    BackgroundEntry,
    DayEntry,
    SpentEntry,
    background_key,
    background_value,
    read_background,
)
from klaw.store.fact_records import fact_value, read_fact
from klaw.store.fields import optional_text, optional_whole, text, whole, yes_or_no
from klaw.store.forget_records import FORGET, ForgetEntry, forget_value, read_forget
from klaw.store.person_records import (
    MENTION,
    PERSON,
    MentionEntry,
    PersonEntry,
    mention_value,
    person_value,
    read_people_entry,
)
from klaw.store.records import dumps
from klaw.store.summary_records import SummaryPut, read_key, read_summary, summary_key, summary_value
from klaw.store.topic_records import TopicEntry, read_topic, topic_value

MEMORY = "memory"
TASK, FACT, CORE, SUMMARY, TOPIC = "task", "fact", "core", "summary", "topic"
"""The words in ``what``."""


@attrs.frozen(kw_only=True)
class TaskEntry:
    """One change of a task."""

    entry: int
    """1, 2, 3 … over the whole journal."""
    time: str
    user: UserId
    name: TaskName
    task: Task | None
    """What was put; None: it was removed."""


@attrs.frozen(kw_only=True)
class FactEntry:
    """One change of a fact."""

    entry: int
    time: str
    user: UserId
    id: FactId
    fact: Fact | None
    """What was put; None: it was removed."""


@attrs.frozen(kw_only=True)
class CoreEntry:
    """A user's core memory as it became."""

    entry: int
    time: str
    user: UserId
    document: Document
    replaces: str
    """SHA-256 of the file that it takes the place of; empty when there was none."""


@attrs.frozen(kw_only=True)
class SummaryEntry:
    """A summary that was made, with what it did to the others of its chat, or one that was removed."""

    entry: int
    time: str
    user: UserId
    chat: ChatId
    number: int
    put: SummaryPut | None
    """What was put; None: it was removed."""


OfPeople: TypeAlias = PersonEntry | MentionEntry
MemoryEntry: TypeAlias = (
    TaskEntry | FactEntry | CoreEntry | SummaryEntry | TopicEntry | ForgetEntry | OfPeople | BackgroundEntry
)


def memory_path(entry: MemoryEntry) -> str:
    return f"{MEMORY}/{entry.time[:7]}.jsonl"


def memory_line(entry: MemoryEntry) -> str:
    match entry:
        case TaskEntry():
            what, key, value = TASK, str(entry.name), None if entry.task is None else _value(entry.task)
        case FactEntry():
            what, key, value = FACT, str(entry.id), None if entry.fact is None else fact_value(entry.fact)
        case CoreEntry():
            what, key, value = CORE, "", {"document": entry.document, "replaces": entry.replaces}
        case SummaryEntry():
            what, key = SUMMARY, summary_key(entry.chat, entry.number)
            value = None if entry.put is None else summary_value(entry.put)
        case TopicEntry():
            what, key, value = TOPIC, str(entry.id), topic_value(entry)
        case PersonEntry():
            what, key = PERSON, str(entry.id)
            value = None if entry.person is None else person_value(entry.person)
        case MentionEntry():
            what, key, value = MENTION, str(entry.id), mention_value(entry.mention)
        case DayEntry() | SpentEntry():
            (what, key), value = background_key(entry), background_value(entry)
        case ForgetEntry():
            what, key, value = FORGET, "" if entry.done is None else str(entry.done), forget_value(entry)
        case _:
            assert_never(entry)
    record: dict[str, Any] = {
        "entry": entry.entry,
        "time": entry.time,
        "user_id": entry.user,
        "op": entry.op if isinstance(entry, TopicEntry) else "remove" if value is None else "put",
        "what": what,
        "key": key,
    }
    return dumps(record if value is None else {**record, "value": value})


def parse_memory(record: dict[str, Any]) -> MemoryEntry:
    """A change of a log's line. Raises KeyError, TypeError or ValueError for a malformed one."""
    if record["what"] == TOPIC:
        return read_topic(record)
    if record["what"] == FORGET and record["op"] in ("put", "remove"):
        return read_forget(record)
    if record["what"] in (DAY, SPENT):
        return read_background(record)
    if record["what"] not in (TASK, FACT, CORE, SUMMARY, PERSON, MENTION):
        raise ValueError("what is of no known kind")
    if record["op"] not in ("put", "remove"):
        raise ValueError("op is neither put nor remove")
    if record["what"] in (PERSON, MENTION):
        return read_people_entry(record)
    entry, time, user = whole(record["entry"]), text(record["time"]), UserId(text(record["user_id"]))
    key, value = text(record["key"]), record["value"] if record["op"] == "put" else None
    match record["what"]:
        case "task":
            name = task_name(key)
            task = _task(user, name, value) if value is not None else None
            return TaskEntry(entry=entry, time=time, user=user, name=name, task=task)
        case "fact":
            fact = read_fact(user, FactId(key), value) if value is not None else None
            return FactEntry(entry=entry, time=time, user=user, id=FactId(key), fact=fact)
        case "summary":
            chat, number = read_key(key)
            put = read_summary(user, chat, number, value) if value is not None else None
            return SummaryEntry(entry=entry, time=time, user=user, chat=chat, number=number, put=put)
        case _:
            if value is None or not isinstance(value["document"], dict):
                raise TypeError("core memory is no object")
            dumps(value["document"]).encode()  # lone surrogates are refused
            replaces = text(value["replaces"])
            return CoreEntry(entry=entry, time=time, user=user, document=value["document"], replaces=replaces)


def _value(task: Task) -> dict[str, Any]:
    return {
        "trigger": _trigger_value(task.trigger),
        "message": task.message,
        "model": task.model,
        "inject_into": task.inject_into,
        "enabled": task.enabled,
        "timeout_s": task.timeout_s,
        "max_tokens": task.max_tokens,
        "daily_tokens": task.daily_tokens,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "anchor_at": task.anchor_at,
    }


def _task(user: UserId, name: TaskName, value: dict[str, Any]) -> Task:
    return Task(
        user=user,
        name=name,
        trigger=_trigger(value["trigger"]),
        message=text(value["message"]),
        model=optional_text(value["model"]),
        inject_into=optional_text(value["inject_into"]),
        enabled=yes_or_no(value["enabled"]),
        timeout_s=optional_whole(value["timeout_s"]),
        max_tokens=optional_whole(value["max_tokens"]),
        daily_tokens=optional_whole(value["daily_tokens"]),
        created_at=text(value["created_at"]),
        updated_at=text(value["updated_at"]),
        anchor_at=text(value["anchor_at"]),
    )


def _trigger_value(trigger: Trigger) -> dict[str, Any]:
    match trigger:
        case Cron():
            return {"cron": trigger.expression, "zone": trigger.zone}
        case Every():
            return {"every_s": trigger.seconds}
        case At():
            return {"at": trigger.instant}


def _trigger(value: dict[str, Any]) -> Trigger:
    if "cron" in value:
        return Cron(expression=text(value["cron"]), zone=text(value["zone"]))
    if "every_s" in value:
        return Every(seconds=whole(value["every_s"]))
    return At(instant=text(value["at"]))
