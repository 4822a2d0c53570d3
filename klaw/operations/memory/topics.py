"""Topics: what the archivist made of the conversations. The answers hold what was said, so they never go into a log."""

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.domain.message import Message
from klaw.domain.text import plural
from klaw.domain.topic import MAX_MERGED, Topic, TopicId
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.chat import session_of
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Line, Lines, Table, days, minute
from klaw.operations.record_fields import table, to_edit

if TYPE_CHECKING:
    from klaw.operations.answers import ChangeOfTopics

IN_CHATS = 10
MOST_TOLD = 100
"""Topics of one answer; the rest is counted."""

NOUN = op.Noun("topics", "list, search, show, edit, merge, split and rebuild topics (docs/topics.md)")


@attrs.frozen(kw_only=True)
class TopicsList(op.OfUser):
    chat: op.ChatName | None = op.argument("only topics of this chat", metavar="NAME")
    limit: op.Limit = op.argument("entries, 1 to 100 (default: 20)", default=20, metavar="N")
    before: op.Whole | None = op.argument("those behind an entry, by its last_rowid (--json)", metavar="ROW")


@attrs.frozen(kw_only=True)
class TopicsSearch(op.OfUser):
    query: op.Query = op.required("a question, or words", words=True)
    limit: op.Limit = op.argument("entries, 1 to 100 (default: 10)", default=10, metavar="N")


@attrs.frozen(kw_only=True)
class TopicsShow(op.OfUser):
    topic: op.Name = op.required("its number")


@attrs.frozen(kw_only=True)
class OfTopic(op.OfUser):
    topic: op.Whole = op.required("its number")


TopicsEdit = to_edit(Topic, OfTopic)


@attrs.frozen(kw_only=True)
class MergeFields:
    topics: Annotated[tuple[op.Whole, ...], Bounds(2, MAX_MERGED)] = op.required(
        "numbers of two or more topics of one chat", metavar="TOPIC"
    )
    summary: str | None = op.argument("the new summary (default: the old ones, one after the other)", metavar="TEXT")


@attrs.frozen(kw_only=True)
class TopicsMerge(op.OfUser):
    fields: MergeFields = op.argument("what to merge", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class Cuts:
    at: Annotated[tuple[Annotated[str, Bounds(1, 200)], ...], Bounds(0, 200)] = op.argument(
        "a message that begins a new topic: its id, or main#12; may be repeated", default=(), metavar="MESSAGE"
    )


@attrs.frozen(kw_only=True)
class TopicsSplit(OfTopic):
    fields: Cuts = op.argument("where to split", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class TopicsRebuild(op.OfUser):
    chat: op.ChatName | None = op.argument("only topics of this chat", metavar="NAME")
    since: op.Name | None = op.argument("only topics last talked about since then: 2026-05-01, 7d …", metavar="TIME")
    dry_run: bool = op.argument("only list what would be dropped", default=True)


@attrs.frozen(kw_only=True)
class TopicsHistory(op.OfUser):
    topic: op.Whole | None = op.argument("only changes of this topic, by its number", positional=True)
    limit: op.Limit = op.argument("entries, 1 to 100 (default: 20)", default=20, metavar="N")


@attrs.frozen(kw_only=True)
class TopicsUndo(op.OfUser):
    entry: op.Whole | None = op.argument("number of the change (default: the newest one you made)", positional=True)


class SaidMessage(TypedDict):
    seq: int
    role: str
    type: str
    at: str
    content: str


class TopicList(TypedDict):
    user: str
    count: int
    topics: list[Topic]


class TopicMatches(TypedDict):
    user: str
    topics: list[Topic]
    degraded: tuple[str, ...]


class OneTopic(TypedDict):
    topic: Topic


class TopicWithMessages(OneTopic):
    messages: list[SaidMessage]


class TopicParts(TypedDict):
    ended: int
    topics: list[Topic]


class RebuiltTopics(TypedDict):
    user: str
    chat: str | None
    since: str | None
    dropped: bool
    entries: list[int]
    messages: int
    count: int
    topics: list[Topic]


class TopicHistory(TypedDict):
    user: str
    changes: "list[ChangeOfTopics]"


class UndoneChange(TypedDict):
    undone: int
    entry: int
    count: int
    topics: tuple[Topic, ...]
    ended: tuple[int, ...]
    ended_count: int


# -- how they are shown -----------------------------------------------------------------------------------------------

_UNDO = "to undo this: klaw topics undo"


def _table(answer: dict[str, Any]) -> Lines:
    if not answer["topics"]:
        return ["no topics yet: topics.enabled lets Klaw make them (docs/topics.md)"]
    return [table(Topic, answer["topics"]), f"{len(answer['topics'])} of {answer['count']}"]


def _in_chat(answer: dict[str, Any]) -> Lines:
    if not answer["topics"]:
        return ["There are no topics yet. The setting topics.enabled lets Klaw make them."]
    head = "Topics, the last talked about first:"
    return [head, *_rows(answer["topics"]), *op.also(answer, "topics", "klaw topics list")]


def _found(answer: dict[str, Any]) -> Lines:
    return (
        ["Topics that fit, the best first:", *_rows(answer["topics"])] if answer["topics"] else ["No topic fits that."]
    )


def _rows(topics: list[dict[str, Any]], count: int = 0) -> Lines:
    """Topics, of ``count``. A summary is shown whole: of a part, forgetting would not know what it is."""
    rows = [
        [str(each["id"]), each["chat"].partition(":")[2], days(each["first_at"], each["last_at"]), each["summary"]]
        for each in topics
    ]
    return [Table(rows), *([f"  … and {count - len(rows)} more"] if count > len(rows) else [])]


def lines(answer: dict[str, Any]) -> Lines:
    topic = answer["topic"]
    span = f"{minute(topic['first_at'])} to {minute(topic['last_at'])}"
    return [
        f"topic {topic['id']} of {topic['chat']}, {plural(topic['messages'], 'message')}, {span}",
        f"  {topic['summary']}",
        *(f"#{each['seq']} {each['role']}: {each['content']}" for each in answer["messages"]),
    ]


def _changed(answer: dict[str, Any]) -> Lines:
    """What an edit, a merge or a split made."""
    head = [f"instead of topic {answer['ended']}:"] if "ended" in answer else []
    return [*head, *_rows(answer.get("topics") or [answer["topic"]]), _UNDO]


def _rebuilt(answer: dict[str, Any]) -> Lines:
    told = f"{plural(answer['count'], 'topic')} of {plural(answer['messages'], 'message')}"
    if answer["dropped"]:
        return [f"dropped {told}, to be made again", *(f"{_UNDO} {entry}" for entry in answer["entries"])]
    return [f"would be dropped and made again: {told}", *_rows(answer["topics"], answer["count"])]


def _undone(answer: dict[str, Any]) -> Lines:
    lines: list[Line] = [f"change {answer['undone']} was undone by change {answer['entry']}"]
    if answer["topics"]:
        lines += ["restored:", *_rows(answer["topics"], answer["count"])]
    if answer["ended"]:
        lines.append(f"removed: {_ids(answer['ended'], answer['ended_count'])}")
    return lines


def _ids(ids: list[int], count: int) -> str:
    return ", ".join(map(str, ids)) + (f" and {count - len(ids)} more" if count > len(ids) else "")


def _changes(answer: dict[str, Any]) -> Lines:
    if not answer["changes"]:
        return ["no changes of topics"]
    rows = [["entry", "at", "chat", "by", "change", "note"]]
    for each in answer["changes"]:
        before = _ids([state["id"] for state in each["before"]], each["before_count"]) or "-"
        after = _ids(each["after"], each["after_count"]) or "-"
        notes = [f"undoes {each['undoes']}"] if each["undoes"] is not None else []
        notes += [f"undone by {each['undone_by']}"] if each["undone_by"] is not None else []
        change = f"{each['op']} {before} -> {after}"
        by = "Klaw" if each["by"] == "archivist" else each["by"]
        rows.append([str(each["entry"]), minute(each["at"]), each["chat"], by, change, "; ".join(notes)])
    return [Table(rows, right=frozenset({0}))]


# -- the operations ---------------------------------------------------------------------------------------------------

_SLASH = op.Slash(
    word="/topics",
    help="list what we talked about; /topics WORDS finds what fits",
    given={"limit": IN_CHATS},
    show=_in_chat,
)


@NOUN.operation("topics_list", TopicsList, cli="list", show=_table, offline=True, slash=_SLASH, mcp="topics")
async def list_topics(asked: TopicsList, caller: Caller, parts: DatabaseParts) -> TopicList:
    """List the topics, those last talked about first.

    What the user talked about lately, each with a summary; fetch topic:ID shows the messages.
    """
    chat, before = op.chat_of(asked.chat, caller.user), asked.before or 1 << 62
    found = await parts.readers.run(stored.topics.of_user, caller.user, chat=chat, before=before, limit=asked.limit)
    count = await parts.readers.run(stored.topics.count, caller.user, chat)
    return {"user": caller.user, "count": count, "topics": found}


@NOUN.operation("topics_search", TopicsSearch, cli="search", show=_found, slash=op.Slash(word="/topics", rest="query"))
async def search(asked: TopicsSearch, caller: Caller, parts: Parts) -> TopicMatches:
    """Find topics by words and by meaning."""
    filters = stored.history_search.HistoryFilters(user=caller.user)
    page = await parts.memory.topic_search.search(asked.query, filters, limit=asked.limit)
    return {"user": caller.user, "topics": [hit.topic for hit in page.hits], "degraded": page.degraded}


@NOUN.operation("topics_show", TopicsShow, cli="show", show=lines, offline=True)
async def show(asked: TopicsShow, caller: Caller, parts: DatabaseParts) -> TopicWithMessages:
    """Show a topic with its messages."""
    topics, number = stored.topics, asked.topic
    topic = TopicId(int(number)) if number.isdecimal() and len(number) < 19 else TopicId(0)
    found = await parts.readers.run(topics.get, caller.user, topic)
    if found is None:
        into = await parts.readers.run(topics.resolve, caller.user, topic)
        hint = f"; topic {into} took it in" if into is not None else ""
        raise op.OperationError("unknown_topic", f"there is no such topic{hint}", field="topic")
    return {"topic": found, "messages": list(map(said, await parts.readers.run(topics.read, caller.user, topic)))}


def said(each: Message) -> SaidMessage:
    return {"seq": each.seq, "role": each.role, "type": each.type, "at": each.created_at, "content": each.content}


@NOUN.operation("topics_edit", TopicsEdit, cli="edit", show=_changed, changes=True, deadline_s=60.0)
async def edit(asked: Any, caller: Caller, parts: Parts) -> OneTopic:
    """Give a topic another summary."""
    return {"topic": await parts.memory.topic_control.edit(caller.user, asked.topic, asked.fields.summary)}


@NOUN.operation("topics_merge", TopicsMerge, cli="merge", show=_changed, changes=True, deadline_s=60.0)
async def merge(asked: TopicsMerge, caller: Caller, parts: Parts) -> OneTopic:
    """Merge topics into the first of them."""
    topics = list(asked.fields.topics)
    return {"topic": await parts.memory.topic_control.merge(caller.user, topics, asked.fields.summary)}


@NOUN.operation("topics_split", TopicsSplit, cli="split", show=_changed, changes=True, deadline_s=600.0)
async def split(asked: TopicsSplit, caller: Caller, parts: Parts) -> TopicParts:
    """Split a topic into several; without --at a model decides where."""
    made = await parts.memory.topic_control.split(caller.user, asked.topic, list(asked.fields.at))
    return {"ended": asked.topic, "topics": made}


@NOUN.operation(
    "topics_rebuild",
    TopicsRebuild,
    cli="rebuild",
    show=_rebuilt,
    changes=True,
    deadline_s=60.0,
    confirm="Make them again? It costs calls to the model.",
)
async def rebuild(asked: TopicsRebuild, caller: Caller, parts: Parts) -> RebuiltTopics:
    """Drop topics and have them made again; facts are kept."""
    chat, control = op.chat_of(asked.chat, caller.user), parts.memory.topic_control
    if chat is not None:
        await session_of(chat, parts)
    zone = await parts.readers.run(stored.tasks.days_zone, caller.user)
    since = op.timed("since", asked.since, parts.clock.now(), zone)
    found = await control.in_scope(caller.user, chat, since)
    entries = [] if asked.dry_run else await control.rebuild(caller.user, chat, since)
    return {
        "user": caller.user,
        "chat": chat,
        "since": since,
        "dropped": not asked.dry_run,
        "entries": entries,
        "messages": sum(topic.messages for topic in found),
        "count": len(found),
        "topics": found[:MOST_TOLD],
    }


@NOUN.operation("topics_history", TopicsHistory, cli="history", show=_changes)
async def history(asked: TopicsHistory, caller: Caller, parts: Parts) -> TopicHistory:
    """Show changes of topics, the newest first."""
    topic = TopicId(asked.topic) if asked.topic is not None else None
    found = await parts.readers.run(stored.topic_changes.of_user, caller.user, topic=topic, limit=asked.limit)
    return {"user": caller.user, "changes": list(map(_change, found))}


def _change(change: "stored.topic_changes.TopicChange") -> "ChangeOfTopics":
    was = [
        {"id": each.id, "summary": each.summary, "messages": len(each.members)} for each in change.before[:MOST_TOLD]
    ]
    counts = {"before_count": len(change.before), "after_count": len(change.after)}
    return {**attrs.asdict(change, recurse=False), **counts, "before": was, "after": change.after[:MOST_TOLD]}


@NOUN.operation("topics_undo", TopicsUndo, cli="undo", show=_undone, changes=True, deadline_s=60.0)
async def undo(asked: TopicsUndo, caller: Caller, parts: Parts) -> UndoneChange:
    """Undo a change of topics, also one that undid another."""
    done = await parts.memory.topic_control.undo(caller.user, asked.entry)
    return {
        "undone": done.undone,
        "entry": done.entry,
        "count": len(done.topics),
        "topics": done.topics[:MOST_TOLD],
        "ended": done.ended[:MOST_TOLD],
        "ended_count": len(done.ended),
    }
