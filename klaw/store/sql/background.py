"""SQL of work in the background: what calls to models used, and the days that older versions drew into facts."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import apsw
import attrs

from klaw.convert import JOURNAL, Check, Form, Wire
from klaw.domain.names import ChatId, UserId
from klaw.store.changes import Change, Kind, RowIds, ranges
from klaw.store.rebuild.tables import Table
from klaw.store.records import dumps

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
    """Nothing is left of the day."""


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, each in part.items():
        JOURNAL.read(each, str if name == "model" else int)
    return part


@attrs.frozen(kw_only=True)
class Charge:
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


def _apply_charge(connection: apsw.Connection, change: Change[Charge]) -> None:
    assert change.value is not None
    parts = dumps([dict(part) for part in change.value.parts])
    connection.execute(_PUT_SPENT, (change.entry, change.time, change.key, change.user, change.value.chat, parts))


_ROWS = "SELECT * FROM {table} WHERE entry > :after AND entry <= :end ORDER BY entry LIMIT :limit"

DAY: Kind[DrawnDay] = Kind(
    what="day",
    counted="days",
    ops={"put": DrawnDay},
    key=Form(date, date),
    apply=_apply_day,
    clear=("DELETE FROM day_entries", "DELETE FROM drawn_messages"),
    tables=(Table(name="days drawn into facts", statement=_ROWS.format(table="day_entries"), bound="entry"),),
)
SPENT: Kind[Charge] = Kind(
    what="spent",
    counted="spendings",
    ops={"put": Charge},
    key=Form(source, source),
    apply=_apply_charge,
    clear=("DELETE FROM background_charges",),
    tables=(
        Table(name="spending in the background", statement=_ROWS.format(table="background_charges"), bound="entry"),
    ),
)
