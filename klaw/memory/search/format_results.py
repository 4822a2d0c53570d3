"""What a tool shows the model of a search: one labelled line a result. Pure."""

from collections.abc import Sequence

from klaw.domain.fact import Origin
from klaw.domain.names import name_of
from klaw.domain.search import (
    AnyResult,
    DocumentResult,
    FactResult,
    FileResult,
    NoteResult,
    PersonResult,
    SearchPage,
    SearchResult,
    TopicResult,
)
from klaw.domain.text import cut, minute, one_line

_ORIGINS = {
    Origin.USER: "the user's own words",
    Origin.ASSISTANT: "noted by the assistant",
    Origin.TOOL: "noted after reading from outside, not the user's words",
}


def show(
    page: SearchPage,
    results: Sequence[AnyResult],
    topics: Sequence[TopicResult] = (),
    people: Sequence[PersonResult] = (),
) -> str:
    """Results, people and topics of a page as lines; or why there are none."""
    if not page.words:
        return "Nothing was searched: the query has no word to look for."
    found = [
        *map(_person, people),
        *map(_topic, topics),
        *(f"{_label(each)}: {one_line(each.snippet)}" for each in results),
    ]
    lines = [f"{number}. {line}" for number, line in enumerate(found, 1)]
    if not lines:
        lines.append("Nothing found. Other words may find it; do not invent it.")
    if set(page.degraded) - {"embedding_off"}:  # that is as the user wants it
        lines.append(f"[Not all could be searched: {', '.join(page.degraded)}]")
    return "\n".join(lines)


def _label(result: AnyResult) -> str:
    match result:
        case SearchResult():
            return f"[message, {minute(result.created_at)}, chat {name_of(result.chat)}, {result.role.value}]"
        case FactResult():
            details = f"{result.category}, importance {result.importance}, {_ORIGINS[result.origin]}"
            return f"[fact {result.id}, {result.updated_at[:10]}, {details}]"
        case FileResult():
            under = f", under {one_line(result.heading)}" if result.heading else ""
            return f"[file {one_line(result.path)}, line {result.line}{under}]"
        case DocumentResult():
            page = f", page {result.page}" if result.page is not None else ""
            place = f"in chat {name_of(result.chat)}, {minute(result.created_at)}"
            return f"[file {one_line(result.name)}{page}, {place}, not the user's words]"
        case NoteResult():
            place = f"{minute(result.created_at)}, chat {name_of(result.chat)}"
            return f"[note on a tool's result, {place}, not the user's words]"


MAX_SUMMARY_CHARS = 400


def _topic(topic: TopicResult) -> str:
    said = f"{minute(topic.first_at)} to {minute(topic.last_at)}, chat {name_of(topic.chat)}"
    return f"[topic, {said}, {topic.messages} messages]: {cut(one_line(topic.summary), MAX_SUMMARY_CHARS)}"


def _person(person: PersonResult) -> str:
    also = [f"also called {', '.join(person.aliases)}"] if person.aliases else []
    named = [f"last named {person.last_at[:10]}"] if person.last_at else []
    who = [f"the user's {person.relation}"] if person.relation else []
    facts = " ".join(f"(fact {each.id}) {cut(one_line(each.text), MAX_SUMMARY_CHARS)}" for each in person.facts)
    line = f"[{', '.join(['person', *who, *also, *named])}]: {person.name}{f'. {facts}' if facts else ''}"
    return one_line(line)
