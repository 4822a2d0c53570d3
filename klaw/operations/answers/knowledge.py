"""Knowledge bases."""

from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict

import attrs

from klaw.domain.knowledge import Base, Document, Passage, Place, Source
from klaw.knowledge.check import Flaw
from klaw.knowledge.scan import SourceState
from klaw.operations.answers import fields_of
from klaw.operations.answers.chats import StillHeld


class BaseName(TypedDict):
    id: str
    name: str


if TYPE_CHECKING:
    BaseAnswer: TypeAlias = dict[str, Any]
else:
    BaseAnswer = fields_of(
        "BaseAnswer", Base, "user", owner=str, role=str, members=dict[str, str], documents=int, passages=int
    )


@attrs.frozen(kw_only=True)
class CountedSource(Source):
    """A source with what came of it."""

    documents: int
    waiting: int
    failed: int
    with_problems: int
    passages: int
    bytes: int
    state: SourceState | None


class Bases(TypedDict):
    user: str
    bases: list[BaseAnswer]


class OneBase(TypedDict):
    base: BaseAnswer


class SharedBase(OneBase):
    member: str
    role: str


class ShownBase(OneBase):
    sources: list[CountedSource]
    unembedded: int
    with_problems: int
    problems: list[Document]


class LeftBase(TypedDict):
    left: BaseName


class BasesOfChat(TypedDict):
    chat: str
    bases: list[BaseName]
    gone: tuple[str, ...]


class DocumentPage(TypedDict):
    base: str
    name: str
    count: int
    documents: list[Document]
    next: int | None


class OpenedDocument(TypedDict):
    document: Document
    base: BaseName
    passages: list[Passage]
    previous: int | None
    next: int | None


class Sources(TypedDict):
    base: str
    name: str
    sources: list[CountedSource]


class AddedSource(TypedDict):
    source: Source
    added: bool


class RefreshedSource(TypedDict):
    source: str
    name: str
    problem: str


@attrs.frozen(kw_only=True)
class PassageAnswer(Place):
    title: str
    also: list[Place]
    text: str
    score: float
    kept: bool
    decision: str


class PassagesFound(TypedDict):
    base: str
    passages: list[PassageAnswer]
    candidates: int
    nothing: str | None
    degraded: tuple[str, ...]


class CitedIn(TypedDict):
    chat: str
    seq: int
    cited: bool


class RemovedOfBase(TypedDict):
    base: str
    name: str
    removed: bool
    sources: int
    documents: int
    passages: int
    cited: list[CitedIn]
    cited_by_others: int | None
    everywhere: bool
    looked_for: NotRequired[int]
    lines: NotRequired[int | None]
    vacuumed: NotRequired[bool]
    still_held: NotRequired[list[StillHeld]]
    aside: NotRequired[list[StillHeld]]


class CheckedBase(BaseName):
    documents: int
    waiting: int
    flaws: list[Flaw]


class CheckedBases(TypedDict):
    bases: list[CheckedBase]
    orphans: list[Flaw]
    flaws: int
    repairing: int
