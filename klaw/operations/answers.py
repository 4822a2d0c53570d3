"""What answers of several modules consist of, and classes of other packages that stand in answers. The command line
does without this module: annotations name its classes as texts (``api.openapi``)."""

from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

import attrs

from klaw.config.listed import Setting
from klaw.domain.forget import Thing
from klaw.domain.task import Run
from klaw.knowledge.check import Flaw
from klaw.knowledge.scan import SourceState
from klaw.llm.budget import BudgetReport
from klaw.llm.facts import ModelCheck
from klaw.operations.record_fields import fields_of
from klaw.runs.service import LONG
from klaw.settings import ChangeResult
from klaw.store.backup_mark import BackupMark
from klaw.store.kinds.chats import StoredChat
from klaw.store.kinds.imports import ImportSummary
from klaw.store.kinds.topic_changes import TopicChange
from klaw.store.rebuild.actor import ReindexStatus
from klaw.wire.frames import DegradedPart, MessagePage

NAMED = (
    *(BackupMark, BudgetReport, ChangeResult, Flaw, ImportSummary, MessagePage, ModelCheck, ReindexStatus, Setting),
    *(SourceState, StoredChat),
)
"""Classes that only annotations of other modules name."""


@attrs.frozen(kw_only=True)
class DegradedSince(DegradedPart):
    since: str


@attrs.frozen(kw_only=True)
class ListedChat(StoredChat):
    messages: int


RunAnswer: TypeAlias = Annotated[dict[str, Any], fields_of("RunAnswer", Run, maybe=LONG, status=str)]
"""A run of a task or a subagent; what may be long only where it is shown whole. It may also wait."""


class WhyAnswer(TypedDict):
    """``place`` and ``advice`` say in short where the message is."""

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


class FormerTopic(TypedDict):
    id: int
    summary: str
    messages: int


ChangeOfTopics: TypeAlias = Annotated[
    dict[str, Any],
    fields_of("ChangeOfTopics", TopicChange, before=list[FormerTopic], before_count=int, after_count=int),
]


# -- forgetting --------------------------------------------------------------------------------------------------------


class NamedMessage(TypedDict):
    chat: str
    seq: int
    id: str


class StillHeld(TypedDict):
    path: str
    count: NotRequired[int]
    kind: NotRequired[str]
    remedy: str


class ForgetAnswer(TypedDict):
    """What goes, or has gone, and where it was. The messages of whole chats are only counted."""

    forgotten: bool
    user: str
    messages: list[NamedMessage] | int
    facts: Sequence[str]
    kept_facts: Sequence[str]
    topics: Sequence[int]
    summaries: list[str]
    things: Sequence[Thing]
    names: list[dict[str, str]]
    people: Sequence[str]
    kept_people: Sequence[str]
    named: Any
    rows: dict[str, int]
    again: list[NamedMessage]
    searched: bool
    held: list[StillHeld]
    aside: list[StillHeld]
    entry: NotRequired[int | None]
    lines: NotRequired[int]
    vacuumed: NotRequired[bool]
    still_held: NotRequired[list[StillHeld]]
    still_named: NotRequired[Any]
    still_kept: NotRequired[dict[str, int]]
    everywhere: NotRequired[bool]
