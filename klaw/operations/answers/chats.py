"""Chats, what is forgotten of them, imports, receipts, usage."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypeAlias, TypedDict

import attrs

from klaw.actor.supervisor import ActorReport
from klaw.domain.forget import Thing
from klaw.domain.summary import Summary
from klaw.domain.turn import TurnRecord
from klaw.domain.usage import UsageSum
from klaw.llm.budget import BudgetReport
from klaw.operations.answers.server import DegradedPart
from klaw.store.kinds.chats import StoredChat
from klaw.store.kinds.imports import ImportSummary
from klaw.store.kinds.messages import ChatRow
from klaw.wire.frames import MessagePage

Messages: TypeAlias = MessagePage


class SaidMessage(TypedDict):
    seq: int
    role: str
    type: str
    at: str
    content: str


@attrs.frozen(kw_only=True)
class ListedChat(StoredChat):
    messages: int


class ChatPage(TypedDict):
    user: str
    archived: bool
    count: int
    next: int | None
    chats: list[ListedChat]


class OneChat(TypedDict):
    chat: StoredChat


class PartOfChat(TypedDict):
    chat: str
    format: str
    messages: int
    text: str
    next: int | None


class Summaries(TypedDict):
    summaries: list[Summary]


class NamedMessage(TypedDict):
    chat: str
    seq: int
    id: str


class StillHeld(TypedDict):
    path: str
    count: NotRequired[int]
    kind: NotRequired[str]
    remedy: str


class _ForgetAnswer(TypedDict):
    forgotten: bool
    user: str
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


class ForgetAnswer(_ForgetAnswer):
    """What goes, or has gone, and where it was."""

    messages: list[NamedMessage]


class ForgottenChats(_ForgetAnswer):
    """As ``ForgetAnswer``, but messages are only counted."""

    messages: int


class Imports(TypedDict):
    user: str
    imports: list[ImportSummary]


class RememberedCounts(TypedDict):
    facts: int
    people: int


class StoredMessages(TypedDict):
    chat: str
    added: int
    known: int
    elsewhere: int


class MissingMessages(TypedDict):
    missing: list[str]


class UploadedPiece(TypedDict):
    size: int
    upload: NotRequired[str]


class ChatState(TypedDict):
    session: ChatRow
    now: dict[str, Any]
    pending: int
    actor: ActorReport | None
    coverage: dict[str, int] | None
    last_turn: dict[str, Any] | None


class ChatNow(TypedDict):
    """What a chat does; ``code`` and ``message`` say why its last message has no answer."""

    name: str
    state: str
    turn: str | None
    doing: str | None
    code: str | None
    message: str | None
    messages: int
    segment: int
    model: str
    degraded: list[DegradedPart]


class Stopping(TypedDict):
    chat: str
    running: bool


class PieceOfFile(TypedDict):
    """``type`` is the media type by the content, ``bytes`` the size of the whole file."""

    type: str
    bytes: int
    data: str


class KeptFile(TypedDict):
    sha256: str
    name: str


@attrs.frozen(kw_only=True)
class TurnReceipt(TurnRecord):
    """What an answer was made from; ``why`` where it was asked for."""


@attrs.frozen(kw_only=True)
class Spending(UsageSum):
    """Sums of calls to models."""

    cost_usd: float


@attrs.frozen(kw_only=True)
class SpendingOf(Spending):
    key: str | None


class UsageAnswer(TypedDict):
    since: str
    days: int
    user: str | None
    by: str
    groups: list[SpendingOf]
    total: Spending
    budget: BudgetReport | None
