"""What calls to models used: sums over a span of time, and what work in the background used. Without a user only for
the operator, and for the daily limits of the whole installation."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import apsw
import attrs

from klaw.convert import JOURNAL, Check, Form, Wire
from klaw.domain.names import ChatId, UserId, user_of
from klaw.domain.usage import FIELDS, UsageSum
from klaw.store.changes import Change, Kind, RowIds, ranges
from klaw.store.engine import meta, tables
from klaw.store.engine.connect import snapshot
from klaw.store.engine.transaction import Transaction
from klaw.store.rows import dumps, reader

By = Literal["chat", "model", "day", "task", "source"]

MAX_GROUPS = 1000
"""Most rows of an answer; the dearest ones."""


@attrs.frozen(kw_only=True)
class UsageFilters:
    """What counts: from ``since`` on and before ``until`` (ISO-8601 UTC; None: no bound), of one user or of all."""

    since: str | None = None
    until: str | None = None
    user: UserId | None = None
    chat: ChatId | None = None


@attrs.frozen(kw_only=True)
class UsageGroup:
    key: str | None
    """Id of a chat, model, UTC date, name of a task, or source (turn, run, summary …); None: no chat or no task."""
    spent: UsageSum


_spent = reader(UsageSum)
_SUMS = ", ".join(f"coalesce(sum({field}), 0)" for field in FIELDS)
_WHERE = """
FROM charges
WHERE ended_at >= coalesce(:since, '') AND ended_at < coalesce(:until, '~')
    AND (:user IS NULL OR user_id = :user) AND (:chat IS NULL OR chat_id = :chat)
"""
_TOTAL = f"SELECT {_SUMS} {_WHERE}"


def total(connection: apsw.Connection, filters: UsageFilters) -> UsageSum:
    return _spent(connection.execute(_TOTAL, attrs.asdict(filters)).get)


_KEYS = {"chat": "chat_id", "model": "model", "day": "substr(ended_at, 1, 10)", "task": "task", "source": "source"}
_GROUPS = {
    by: f"SELECT {key}, {_SUMS} {_WHERE} GROUP BY 1 ORDER BY sum(cost_nano) DESC, sum(calls) DESC, 1 LIMIT :limit"
    for by, key in _KEYS.items()
}
_DAYS = f"SELECT {_KEYS['day']}, {_SUMS} {_WHERE} GROUP BY 1 ORDER BY 1 DESC LIMIT :limit"


def groups(connection: apsw.Connection, filters: UsageFilters, by: By) -> list[UsageGroup]:
    """By chat, model, task or source, the dearest first; by day, the newest first."""
    statement = _DAYS if by == "day" else _GROUPS[by]
    rows = connection.execute(statement, {**attrs.asdict(filters), "limit": MAX_GROUPS})
    return [UsageGroup(key=row[0], spent=_spent(row[1:])) for row in rows]


def both(connection: apsw.Connection, filters: UsageFilters, by: By) -> tuple[UsageSum, list[UsageGroup]]:
    """The sum and its parts, of one state of the database."""
    with snapshot(connection):
        return total(connection, filters), groups(connection, filters, by)


def count_search(tx: Transaction, user: UserId, day: str, most: int) -> bool:
    """Count a search of the web by a user on a day (ISO-8601); False: there were ``most``, and it was not counted. A
    clock that is set back frees nothing."""
    counted_on, _, count = (meta.get(tx.connection, f"{meta.SEARCHES}{user}") or "").partition(" ")
    used = int(count) if counted_on >= day else 0
    if used < most:
        meta.put(tx.connection, f"{meta.SEARCHES}{user}", f"{max(counted_on, day)} {used + 1}")
    return used < most


DAYS = 30
"""Days that the longer sum of a user goes back, today included."""


@attrs.frozen(kw_only=True)
class ChatUsage:
    chat: UsageSum
    today: UsageSum
    lately: UsageSum
    models: tuple[UsageGroup, ...]
    """The user's last ``DAYS`` days by model, the dearest first."""


def of_chat(connection: apsw.Connection, chat: ChatId, today: str) -> ChatUsage:
    """What a chat used, and its user in all chats and tasks. ``today`` is a UTC date."""
    user = user_of(chat)
    since = (dt.date.fromisoformat(today) - dt.timedelta(days=DAYS - 1)).isoformat()
    lately = UsageFilters(since=since, user=user)
    with snapshot(connection):
        return ChatUsage(
            chat=total(connection, UsageFilters(user=user, chat=chat)),
            today=total(connection, UsageFilters(since=today, user=user)),
            lately=total(connection, lately),
            models=tuple(groups(connection, lately, "model")),
        )


def corrections(connection: apsw.Connection, turns: int) -> dict[str, float]:
    """For each model of the newest turns the correction of token estimates that its last one was planned with."""
    query = """
    SELECT model, receipt ->> '$.budget.correction' FROM turns
    WHERE turn_id IN (SELECT turn_id FROM turns ORDER BY turn_id DESC LIMIT ?) ORDER BY turn_id
    """
    found = connection.execute(query, (turns,))
    return {model: float(ratio) for model, ratio in found if model and isinstance(ratio, int | float)}


_DRAWN = "SELECT rowid FROM drawn_messages WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2))"


def drawn_with_day(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> set[int]:
    """Which of a user's messages were drawn with their day."""
    return {rowid for (rowid,) in connection.execute(_DRAWN, (user, json.dumps(list(rowids))))}


# -- writing -----------------------------------------------------------------------------------------------------------

_PUT_DAY = "INSERT INTO day_entries (entry, user_id, day, at, done, messages) VALUES (?, ?, ?, ?, ?, ?)"
_PUT_DRAWN = """
INSERT OR IGNORE INTO drawn_messages (rowid, user_id)
SELECT m.rowid, m.user_id FROM json_each(?2) AS r CROSS JOIN messages AS m ON m.rowid = r.value WHERE m.user_id = ?1
"""
_PUT_SPENT = "INSERT INTO background_charges (entry, at, source, user_id, chat_id, parts) VALUES (?, ?, ?, ?, ?, ?)"


MAX_SOURCE = 32


@attrs.frozen(kw_only=True)
class DrawnDay:
    """Messages of a user's day that were drawn into facts."""

    messages: RowIds
    done: bool
    """Whether all messages of the day were drawn."""


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, each in part.items():
        JOURNAL.read(each, str if name == "model" else int)
    return part


@attrs.frozen(kw_only=True)
class BackgroundCharge:
    """What one piece of work used of models."""

    chat: Annotated[ChatId | None, Wire("chat_id")]
    parts: Annotated[tuple[Annotated[Mapping[str, Any], Check(_part)], ...], Wire("models")]
    """One for each model that answered; see ``domain.usage.record``."""


def date(given: str) -> str:
    """A date as it is kept. Raises ValueError."""
    if dt.date.fromisoformat(given).isoformat() != given:
        raise ValueError("a date is not written as YYYY-MM-DD")
    return given


def source(given: str) -> str:
    """What spending is for, as it is kept. Raises ValueError."""
    if not 1 <= len(given) <= MAX_SOURCE:
        raise ValueError(f"source: has 1 to {MAX_SOURCE} characters")
    return given


def _apply_day(connection: apsw.Connection, change: Change[DrawnDay]) -> None:
    assert change.value is not None
    drawn = change.value.messages
    row = (change.entry, change.user, change.key, change.time, change.value.done, dumps(ranges(drawn)))
    connection.execute(_PUT_DAY, row)
    connection.execute(_PUT_DRAWN, (change.user, json.dumps(list(drawn))))


def _apply_charge(connection: apsw.Connection, change: Change[BackgroundCharge]) -> None:
    assert change.value is not None
    parts = dumps([dict(part) for part in change.value.parts])
    connection.execute(_PUT_SPENT, (change.entry, change.time, change.key, change.user, change.value.chat, parts))


DAY: Kind[DrawnDay] = Kind(
    what="day",
    plural="days drawn into facts",
    cls=DrawnDay,
    counted="days",
    ops={"put": DrawnDay},
    key=Form(date, date),
    apply=_apply_day,
    clear=("DELETE FROM day_entries", "DELETE FROM drawn_messages"),
    tables=(tables.entries("days drawn into facts", "day_entries", "*"),),
)
SPENT: Kind[BackgroundCharge] = Kind(
    what="spent",
    plural="spending in the background",
    cls=BackgroundCharge,
    counted="spendings",
    ops={"put": BackgroundCharge},
    key=Form(source, source),
    apply=_apply_charge,
    clear=("DELETE FROM background_charges",),
    tables=(tables.entries("spending in the background", "background_charges", "*"),),
)


def note_spent(
    tx: Transaction, source: str, user: UserId, chat: ChatId | None, parts: Sequence[Mapping[str, Any]], at: str
) -> None:
    """Note what work in the background used. ``source``: ``topics``, ``facts``, ``reranker`` … ``parts``: of
    ``Meter.record()["models"]``."""
    tx.journal(SPENT.put(user, source, BackgroundCharge(chat=chat, parts=tuple(parts)), at))
