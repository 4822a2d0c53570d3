"""Search in all that a user and the assistant said, in facts and in memory files; and one of what it finds, whole. The
answers hold what was said, so they never go into a log."""

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict, cast

import attrs

from klaw.convert import Bounds
from klaw.domain.fact import Fact, FactId
from klaw.domain.message import Role
from klaw.domain.names import UserId
from klaw.domain.person import MentionedIn, Person, SpokenOf
from klaw.domain.search import AnyResult, SearchPage
from klaw.domain.text import plural
from klaw.domain.topic import Topic
from klaw.errors import NoSuchFact
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.chat import session_of
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Again, Line, Lines, MarkedLine, ShownLines, days, minute
from klaw.operations.memory import facts, people, topics
from klaw.operations.memory.topics import SaidMessage
from klaw.operations.record_fields import fields_of
from klaw.operations.why import find_message

NOUN = op.Noun("search", "search all that was said, by words and by meaning")
FETCH = op.Noun("fetch", "show a message with what was said around it, a topic, a fact, a person or a memory file")
MOST_AROUND = 20

_TIMES = "2024-05-01, 2024-05-01T18:30+03:00, 7d, 2w, yesterday; local time unless an offset is given"
WITHOUT = {
    "embedding_off": "full text only: embedding.enabled is false",
    "embedding_no_model": "full text only: there is no embedding model now (klaw status says why)",
    "embedding_loading": "full text only: the embedding model is being loaded",
    "embedding_busy": "full text only: the embedder has too much to do",
    "embedding_late": "full text only: the query's vector was not ready in time",
    "embedding_failed": "full text only: the embedding model failed",
    "no_vectors": "full text only: there are no vectors yet",
    "no_model": "full text only: there is no embedding model now (klaw status says why)",
    "other_model": "full text only: the stored vectors are of another embedding model",
    "vectors_incomplete": "most messages have no vector yet and are found by their words only",
    "vectors_not_encoded": "not all vectors were searched: they are being prepared",
    "vector_search_failed": "full text only: the vectors are damaged; a running server makes them again",
    "text_search_failed": "by meaning only: the full-text index is damaged (klaw doctor)",
    "newest_only": "by words only newer messages were ranked: all words of the query are very frequent",
}
"""What codes of ``degraded`` mean."""


@attrs.frozen(kw_only=True)
class Search(op.OfUser):
    query: op.Query = op.required("a question, or words", words=True)
    chat: op.ChatName | None = op.argument("only messages of this chat", metavar="NAME")
    since: op.Name | None = op.argument(f"only what was said from then on: {_TIMES}", metavar="TIME")
    until: op.Name | None = op.argument("only what was said before; a day counts to its end", metavar="TIME")
    role: Literal["user", "assistant"] | None = op.argument("only what the user or the assistant said")
    limit: op.Limit = op.argument("results on a page, 1 to 100 (default: 10)", default=10, metavar="N")
    page: op.Name | None = op.argument("number of the page, or what the page before names")


SearchAnswer: TypeAlias = Annotated[
    dict[str, Any],
    fields_of(
        "SearchAnswer",
        SearchPage,
        user=str,
        chat=str | None,
        since=str | None,
        until=str | None,
        role=Literal["user", "assistant"] | None,
        results=list[AnyResult],
    ),
]


def show(answer: dict[str, Any]) -> ShownLines:
    lines: list[Line] = []
    for each in answer.get("people", ()):
        lines += [
            "  ".join(["person", *filter(None, people.told(each))]),
            *(f"    {fact['text']}" for fact in each["facts"]),
            "",
        ]
    for each in answer.get("topics", ()):
        span = days(each["first_at"], each["last_at"])
        chat = each["chat"].removeprefix(f"{answer['user']}:")
        lines += ["  ".join(["topic", span, chat, plural(each["messages"], "message")]), f"    {each['summary']}", ""]
    for each in answer["results"]:
        marks = [[4 + begin, 4 + end] for begin, end in each["marks"]]
        how = [] if each["words"] else ["by meaning" if each["vector_rank"] is not None else "beside a match"]
        head = [*_label(each, answer["user"]), *how]
        lines += ["  ".join(head), MarkedLine(f"    {each['snippet']}", marks), ""]
    if answer["results"]:
        last = answer["first"] + len(answer["results"]) - 1
        lines.append(f"{answer['first']} to {last} of {_results(answer)}")
    if answer["next"] is not None:
        lines.append(Again("more: ", {"page": answer["next"]}))
    return ShownLines(lines, notes=notes(answer), found=bool(answer["results"] or answer.get("people")))


def notes(answer: dict[str, Any]) -> list[str]:
    """What a person should know of how the search was done, or why nothing was found."""
    out = []
    for code in answer["degraded"]:
        name, _, detail = code.partition(":")
        done = f"full text only, {detail.replace('%', ' %')} re-embedded: the embedding model was changed"
        out.append(done if name == "reembedding" else WITHOUT.get(code, code))
    if answer["words_left_out"]:
        out.append(f"very frequent words were not looked for: {', '.join(answer['words_left_out'])}")
    if not answer["words"]:
        out.append("QUERY has no word or emoji that could be searched for")
    elif not answer["total"] and not answer.get("people"):
        out.append("nothing found")
    elif answer["total"] and not answer["results"]:
        out.append(f"there is no such page: {_results(answer)} in all")
    return out


def _label(result: dict[str, Any], user: str) -> list[str]:
    match result.get("kind", "message"):
        case "fact":
            about = f"{result['category']}, importance {result['importance']}"
            origin = ["after reading from outside"] if result["origin"] == "tool" else []
            return [minute(result["updated_at"]), f"fact {result['id']}", about, *origin]
        case "file":
            return [f"{result['path']}:{result['line']}", *([result["heading"]] if result["heading"] else [])]
        case "document":
            page = [f"page {result['page']}"] if result["page"] is not None else []
            place = f"{result['chat'].removeprefix(f'{user}:')}#{result['seq']}"
            return [minute(result["created_at"]), place, f"file {result['name']}", *page]
        case kind:
            place = f"{result['chat'].removeprefix(f'{user}:')}#{result['seq']}"
            what = "note on a tool's result" if kind == "note" else result["role"]
            return [minute(result["created_at"]), place, what]


def _results(answer: dict[str, Any]) -> str:
    return f"{'' if answer['total_is_exact'] else 'at least '}{answer['total']}"


@NOUN.operation("search", Search, cli="", show=show, offline=True, mcp="search")
async def search(asked: Search, caller: Caller, parts: DatabaseParts) -> SearchAnswer:
    """Search all that was said, by words and by meaning.

    Finds messages of all chats, facts, memory files, topics and people. Use it first for every question about the user
    or about what was said before; fetch then shows a result whole, by its chat and number like main#12, or as fact:ID,
    topic:ID, person:ID.
    """
    from klaw.memory.search.search import Cursor, read_cursor

    chat = op.chat_of(asked.chat, caller.user, any_user=caller.everybody and asked.user is None)
    page = op.understood("page", read_cursor, asked.page) if asked.page is not None else 1
    now = page.asked_at if isinstance(page, Cursor) else parts.search.now()
    zone = await parts.readers.run(stored.tasks.days_zone, caller.user)
    since, until = op.timed("since", asked.since, now, zone), op.timed("until", asked.until, now, zone, until=True)
    if since is not None and until is not None and since >= until:
        raise op.OperationError("bad_args", "must be later than since", field="until")
    filters = stored.history_search.HistoryFilters(
        user=UserId(chat.partition(":")[0]) if chat is not None else caller.user,
        chat=chat,
        since=since,
        until=until,
        role=Role(asked.role) if asked.role is not None else None,
    )
    if chat is not None:
        await session_of(chat, parts)
    missing = await parts.embedder.prepare()
    found = await parts.search.search(asked.query, filters, limit=asked.limit, page=page)
    told = {
        "degraded": [missing if missing and each == "embedding_off" else each for each in found.degraded],
        "results": [attrs.asdict(each) for each in found.results],
    }
    asked_for = {"user": filters.user, "chat": chat, "since": since, "until": until, "role": asked.role}
    return {**asked_for, **attrs.asdict(found, recurse=False), **told}


# -- one thing, whole --------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Fetch(op.OfUser):
    what: op.Name = op.required(
        "a message's id or main#12, topic:ID, fact:ID, person:ID or person:NAME, file:MEMORY.md",
        metavar="WHAT",
        id_of="message",
        in_tools="id",
    )
    around: Annotated[int, Bounds(0, MOST_AROUND)] = op.argument(
        "of a message: how many before and after it (default: 3)", default=3, metavar="N"
    )


class FetchAnswer(TypedDict):
    """``kind`` (message, topic, fact, person, file) tells which of the others are there."""

    kind: str
    chat: NotRequired[str]
    seq: NotRequired[int]
    messages: NotRequired[list[SaidMessage]]
    topic: NotRequired[Topic]
    fact: NotRequired[Fact]
    person: NotRequired[SpokenOf]
    path: NotRequired[str]
    text: NotRequired[str]
    was: NotRequired[list[Person]]
    mentions: NotRequired[list[MentionedIn]]


def _fetched(answer: dict[str, Any]) -> Lines:
    match answer["kind"]:
        case "fact":
            return facts.fact_lines(answer)
        case "person":
            return people.with_topics(answer)
        case "topic":
            return topics.lines(answer)
        case "file":
            return [answer["path"], *answer["text"].split("\n")]
    return [f"#{each['seq']} {each['role']}: {each['content']}" for each in answer["messages"]]


@FETCH.operation("fetch", Fetch, cli="", show=_fetched, mcp="fetch")
async def fetch(asked: Fetch, caller: Caller, parts: Parts) -> FetchAnswer:
    """Show a message with what was said around it, a topic with its messages, a fact, a person or a memory file.

    What search, list, topics and people only name.
    """
    kind, _, named = asked.what.partition(":")
    if not named and await parts.readers.run(stored.facts.get, caller.user, FactId(asked.what)) is not None:
        kind, named = "fact", asked.what
    told: Any
    match kind if named else "":
        case "topic":
            told = await topics.show(topics.TopicsShow(topic=named), caller, parts)
            return cast("FetchAnswer", {"kind": kind, **told})
        case "person":
            told = await people.show(people.OfPerson(person=named), caller, parts)
            return cast("FetchAnswer", {"kind": kind, **told})
        case "fact":
            fact = await parts.readers.run(stored.facts.get, caller.user, FactId(named))
            if fact is None:
                raise NoSuchFact
            return {"kind": kind, "fact": fact}
        case "file":
            pieces = await parts.readers.run(stored.memory_files.of_file, caller.user, named)
            if not pieces:
                raise op.OperationError("unknown_file", "no memory file of this name is known", field="what")
            return {"kind": kind, "path": named, "text": "\n\n".join(each.text for each in pieces)}
    found = await find_message(parts, asked.what, None, caller.user, field="what")
    first, end = found.seq - asked.around - 1, found.seq + asked.around + 1
    said = await parts.readers.run(stored.messages.dialogue, found.chat, first, end, 2 * asked.around + 1)
    shown = {each.seq: each for each in (*said, found)}  # a command is no dialogue
    return {
        "kind": "message",
        "chat": found.chat,
        "seq": found.seq,
        "messages": [topics.said(shown[seq]) for seq in sorted(shown)],
    }
