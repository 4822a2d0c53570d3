"""SQL of what calls to models used: sums over a span of time.

For a user's own questions always with their id; without one only for whoever runs the server, and for the daily limits,
which are the installation's.
"""

import datetime as dt
from typing import Literal

import apsw
import attrs

from klaw.domain.names import ChatId, UserId, user_of
from klaw.domain.usage import FIELDS, Spent
from klaw.store.engine.connect import snapshot

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
class Group:
    """One row of an answer."""

    key: str | None
    """The chat's id, the model, the UTC date, the task's name or the source (turn, run, summary, topics, facts …);
    None for what belongs to no chat or no task."""
    spent: Spent


_SUMS = ", ".join(f"coalesce(sum({field}), 0)" for field in FIELDS)
_WHERE = """
FROM charges
WHERE ended_at >= coalesce(:since, '') AND ended_at < coalesce(:until, '~')
    AND (:user IS NULL OR user_id = :user) AND (:chat IS NULL OR chat_id = :chat)
"""
_TOTAL = f"SELECT {_SUMS} {_WHERE}"


def total(connection: apsw.Connection, filters: UsageFilters) -> Spent:
    """All that counts, together."""
    return _spent(connection.execute(_TOTAL, attrs.asdict(filters)).get)


_KEYS = {"chat": "chat_id", "model": "model", "day": "substr(ended_at, 1, 10)", "task": "task", "source": "source"}
_GROUPS = {
    by: f"SELECT {key}, {_SUMS} {_WHERE} GROUP BY 1 ORDER BY sum(cost_nano) DESC, sum(calls) DESC, 1 LIMIT :limit"
    for by, key in _KEYS.items()
}
_DAYS = f"SELECT {_KEYS['day']}, {_SUMS} {_WHERE} GROUP BY 1 ORDER BY 1 DESC LIMIT :limit"


def groups(connection: apsw.Connection, filters: UsageFilters, by: By) -> list[Group]:
    """The same by chat, model, task or source, the dearest first; by day, the newest first. At most ``MAX_GROUPS``."""
    statement = _DAYS if by == "day" else _GROUPS[by]
    rows = connection.execute(statement, {**attrs.asdict(filters), "limit": MAX_GROUPS})
    return [Group(key=row[0], spent=_spent(row[1:])) for row in rows]


def both(connection: apsw.Connection, filters: UsageFilters, by: By) -> tuple[Spent, list[Group]]:
    """The sum and its parts, of one state of the database."""
    with snapshot(connection):
        return total(connection, filters), groups(connection, filters, by)


def _spent(row: tuple[int, ...]) -> Spent:
    return Spent(**dict(zip(FIELDS, row, strict=True)))


DAYS = 30
"""Days that the longer sum of a user goes back, today included."""


@attrs.frozen(kw_only=True)
class ChatUsage:
    """What one chat and its user have used."""

    chat: Spent
    today: Spent
    lately: Spent
    models: tuple[Group, ...]
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


_CORRECTIONS = """
SELECT model, receipt ->> '$.budget.correction' FROM turns
WHERE turn_id IN (SELECT turn_id FROM turns ORDER BY turn_id DESC LIMIT ?) ORDER BY turn_id
"""


def corrections(connection: apsw.Connection, turns: int) -> dict[str, float]:
    """For each model of the newest turns the correction of token estimates that its last one was planned with."""
    found = connection.execute(_CORRECTIONS, (turns,))
    return {model: float(ratio) for model, ratio in found if model and isinstance(ratio, int | float)}
