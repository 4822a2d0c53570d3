"""Facts, people, topics, search."""

from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, TypedDict

import attrs

from klaw.domain.fact import Fact
from klaw.domain.person import MentionedIn, Person, SpokenOf
from klaw.domain.search import FactResult, FileResult, NoteResult, PersonResult, SearchPage, SearchResult
from klaw.domain.topic import Topic
from klaw.operations.answers import fields_of
from klaw.operations.answers.chats import SaidMessage
from klaw.store.kinds.topic_changes import TopicChange


class MemoryAnswer(TypedDict):
    user: str
    core: str
    core_error: str | None
    facts: list[Fact]
    count: int


class PeopleFound(TypedDict):
    user: str
    people: tuple[PersonResult, ...]


class TopicList(TypedDict):
    user: str
    count: int
    topics: list[Topic]


class TopicMatches(TypedDict):
    user: str
    topics: list[Topic]
    degraded: tuple[str, ...]


class TopicWithMessages(TypedDict):
    topic: Topic
    messages: list[SaidMessage]


class OneTopic(TypedDict):
    topic: Topic


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


class FormerTopic(TypedDict):
    id: int
    summary: str
    messages: int


if TYPE_CHECKING:
    ChangeOfTopics: TypeAlias = dict[str, Any]
else:
    ChangeOfTopics = fields_of(
        "ChangeOfTopics", TopicChange, before=list[FormerTopic], before_count=int, after_count=int
    )


class TopicHistory(TypedDict):
    user: str
    changes: list[ChangeOfTopics]


class UndoneChange(TypedDict):
    undone: int
    entry: int
    count: int
    topics: tuple[Topic, ...]
    ended: tuple[int, ...]
    ended_count: int


@attrs.frozen(kw_only=True)
class FoundMessage(SearchResult):
    kind: Literal["message"]


@attrs.frozen(kw_only=True)
class FoundFact(FactResult):
    kind: Literal["fact"]


@attrs.frozen(kw_only=True)
class FoundFile(FileResult):
    kind: Literal["file"]


@attrs.frozen(kw_only=True)
class FoundNote(NoteResult):
    kind: Literal["note"]


if TYPE_CHECKING:
    SearchAnswer: TypeAlias = dict[str, Any]
else:
    SearchAnswer = fields_of(
        "SearchAnswer",
        SearchPage,
        user=str,
        chat=str | None,
        since=str | None,
        until=str | None,
        role=Literal["user", "assistant"] | None,
        results=list[FoundMessage | FoundFact | FoundFile | FoundNote],
    )


class FetchAnswer(TypedDict):
    """``kind`` (message, topic, fact, person) tells which of the others are there."""

    kind: str
    chat: NotRequired[str]
    seq: NotRequired[int]
    messages: NotRequired[list[SaidMessage]]
    topic: NotRequired[Topic]
    fact: NotRequired[Fact]
    person: NotRequired[SpokenOf]
    was: NotRequired[list[Person]]
    mentions: NotRequired[list[MentionedIn]]


class RecallMarks(TypedDict):
    user: str
    chat: str
    messages: list[int]
    recalled: bool


class WhyAnswer(TypedDict):
    """Where a message is; ``place`` and ``advice`` say it in short."""

    message: dict[str, Any]
    segment: dict[str, Any]
    window: dict[str, Any]
    summary: dict[str, Any] | None
    topic: Any
    vector: dict[str, Any]
    full_text: dict[str, Any]
    place: str
    reach: dict[str, bool]
    turns: list[dict[str, Any]]
    query: dict[str, Any] | None
    rare_words: list[dict[str, Any]]
    advice: list[str]
