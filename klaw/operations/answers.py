"""What answers of several modules consist of, and classes of other packages that stand in answers. The command line
does without this module: annotations name its classes as texts (``api.openapi``)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

import attrs

from klaw.actor.supervisor import ActorReport
from klaw.config.listed import Setting
from klaw.domain.forget import Thing
from klaw.domain.message import TurnRecord
from klaw.domain.search import Candidate
from klaw.domain.task import Run
from klaw.domain.usage import UsageSum
from klaw.knowledge.check import Flaw
from klaw.knowledge.scan import SourceState
from klaw.llm.budget import BudgetReport
from klaw.llm.facts import ModelCheck
from klaw.llm.slots import SlotsReport
from klaw.memory.archivist import ArchivistStatus
from klaw.memory.coverage import CoverageStatus
from klaw.memory.embed.embedder import EmbedderStatus
from klaw.operations.record_fields import fields_of
from klaw.runs.service import LONG
from klaw.settings import ChangeResult
from klaw.store.backup_mark import BackupMark
from klaw.store.kinds.chats import StoredChat
from klaw.store.kinds.imports import ImportSummary
from klaw.store.kinds.topic_changes import TopicChange
from klaw.store.rebuild.actor import ReindexStatus
from klaw.toolbox.mcp.host import McpReport
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


Flat: TypeAlias = dict[str, bool | int | float | str | None]
"""What is known of something, by names."""


class WhyAnswer(TypedDict):
    """``place`` and ``advice`` say in short where the message is."""

    message: Flat
    segment: Flat
    window: Flat
    summary: Flat | None
    topic: Flat | None
    vector: Flat
    full_text: Flat
    place: str
    reach: dict[str, bool]
    turns: "list[_MessageInTurn]"
    query: "_RecallQuery | None"
    rare_words: list[Flat]
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
    named: "_NamedPeople | None"
    rows: dict[str, int]
    again: list[NamedMessage]
    searched: bool
    held: list[StillHeld]
    aside: list[StillHeld]
    entry: NotRequired[int | None]
    lines: NotRequired[int]
    vacuumed: NotRequired[bool]
    still_held: NotRequired[list[StillHeld]]
    still_named: NotRequired[Mapping[str, int]]
    still_kept: NotRequired[dict[str, int]]
    everywhere: NotRequired[bool]


# -- types of objects that have no class -------------------------------------------------------------------------------

# fmt: off
_NamedPeople: TypeAlias = Annotated[dict[str, Any], fields_of("NamedPeople", None, names=Sequence[str],
    namesakes=Sequence[str], facts=list[dict[str, str]], messages=int, staying=list[NamedMessage],
    topics=Sequence[int], summaries=list[str], others=dict[str, int])]
_MessageInTurn: TypeAlias = Annotated[dict[str, Any], fields_of("MessageInTurn", None, turn=str, last_seq=int,
    ended_at=str, chat=NotRequired[str], candidate=NotRequired[dict[str, Any]], remedy=NotRequired[str],
    **{"as": str})]
_Candidate: TypeAlias = Annotated[dict[str, Any], fields_of("RecallCandidate", Candidate, "message", "text")]
_RecallQuery: TypeAlias = Annotated[dict[str, Any], fields_of("RecallQuery", None, in_scope=bool, content_words=int,
    degraded=list[str], candidates=int, recalled=bool, place=int | None, candidate=_Candidate | None)]
_WhyInTurn: TypeAlias = Annotated[dict[str, Any], fields_of("WhyInTurn", None, message=Flat, rank=int | None,
    place=int | None, candidate=dict[str, Any] | None, text=list[str],
    searched_now=dict[str, float | str | list[str] | None] | None, **{"as": str})]
_ModelUsage: TypeAlias = Annotated[dict[str, Any], fields_of("ModelUsage", UsageSum, maybe=None, model=str)]
_Usage: TypeAlias = Annotated[dict[str, Any], fields_of("TurnUsage", UsageSum, maybe=None,
    models=NotRequired[list[_ModelUsage]])]
TurnAnswer: TypeAlias = Annotated[dict[str, Any], fields_of("TurnAnswer", TurnRecord, usage=_Usage,
    timings=dict[str, float], why=NotRequired[_WhyInTurn])]
ActorNode: TypeAlias = Annotated[dict[str, Any], fields_of("ActorNode", ActorReport, maybe=None, name=str, kind=str,
    children="list[ActorNode]", since=NotRequired[float | str | None], **dict.fromkeys((
        "total", "busy", "waiting", "waiting_background", "high_water", "granted",  # slots; else connections
        "frames_in", "frames_out", "outbox", "outbox_high_water", "watched", "in_flight"), NotRequired[int]),
    **dict.fromkeys(("id", "user", "client", "peer"), NotRequired[str | None]))]
TrioTask: TypeAlias = Annotated[dict[str, Any], fields_of("TrioTask", None, name=str, stack=list[str],
    nurseries="list[list[TrioTask]]")]
McpServerAnswer: TypeAlias = Annotated[dict[str, Any], fields_of("McpServerAnswer", McpReport, since=str)]
_Embedder: TypeAlias = Annotated[dict[str, Any], fields_of("EmbedderAnswer", EmbedderStatus, since=str)]
_Coverage: TypeAlias = Annotated[dict[str, Any], fields_of("CoverageAnswer", CoverageStatus, counted_at=str | None,
    chats=dict[str, int], **dict.fromkeys(("messages", "searchable", "not_searchable", "wordless", "uncovered"), int))]
_Provider: TypeAlias = Annotated[dict[str, Any], fields_of("ProviderState", None, name=str, state=str, failures=int,
    retry_in_s=float, failed_s=float | None, error=str | None, error_code=str | None, adapted=dict[str, list[str]])]
_Models: TypeAlias = Annotated[dict[str, Any], fields_of("ModelsState", None, model=str, slots=SlotsReport,
    providers=list[_Provider], budget=BudgetReport, today=UsageSum, local=dict[str, str] | None)]
_Tasks: TypeAlias = Annotated[dict[str, Any], fields_of("TasksState", None, next=dict[str, str] | None,
    failing=list[dict[str, str]], **dict.fromkeys(("count", "enabled", "running", "queued", "undelivered"), int))]
_Metric: TypeAlias = Annotated[dict[str, Any], fields_of("Metric", None, type=str, help=str, value=NotRequired[float],
    count=NotRequired[int], sum=NotRequired[float], buckets=NotRequired[dict[str, int]])]
# fmt: on


class StatusAnswer(TypedDict):
    version: str
    pid: int
    started_at: str
    uptime_s: float
    rss_bytes: int
    address: str | None
    connections: int
    http_connections: int
    schema: int
    counts: dict[str, int]
    llm: _Models
    embedder: _Embedder
    mcp: list[McpServerAnswer]
    coverage: _Coverage
    tasks: _Tasks
    summaries: Flat
    topics: ArchivistStatus | None
    waits_for_model: list[str]
    """Summaries, topics: what is off until a model is connected that can do it."""
    metrics: dict[str, _Metric]
    threads: list[dict[str, str | int]]
    degraded: list[DegradedSince]
    disk: dict[str, int]
    backup: dict[str, str | None]
    """``made_at``: the last one; ``failed``: why the last attempt did."""
    log_level: str
    config: dict[str, str | list[str] | None]
