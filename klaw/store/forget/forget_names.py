"""SQL of taking a forgotten person's names out of receipts and runs, and what the logs are to say then.

Which rows that is about the entry names: they were found before, beside the writer. Every question names the user.
"""

import json
from typing import Any

import apsw

from klaw.domain.forget import MARK
from klaw.domain.person import Finder
from klaw.store.forget.forgotten import ForgetEntry, Lines
from klaw.store.kinds import people as stored_people
from klaw.store.rows import dumps

_RECEIPT = "SELECT receipt FROM turns WHERE user_id = ? AND turn_id = ?"
_PUT_RECEIPT = "UPDATE turns SET receipt = ?3 WHERE user_id = ?1 AND turn_id = ?2"
_RUN = "SELECT message, result, note, error, details, change FROM runs WHERE user_id = ? AND id = ?"
_PUT_RUN = """
UPDATE runs SET message = ?3, result = ?4, note = ?5, error = ?6, details = ?7 WHERE user_id = ?1 AND id = ?2
"""


def take_out(connection: apsw.Connection, entry: ForgetEntry) -> None:
    """Put MARK in place of the names of the entry's people; called while they are still there."""
    if not entry.turns and not entry.runs:
        return
    finder = Finder(tuple(stored_people.own_names(connection, entry.user, entry.people).values()))
    for turn in entry.turns:
        receipt = connection.execute(_RECEIPT, (entry.user, turn)).get
        if receipt is not None:
            connection.execute(_PUT_RECEIPT, (entry.user, turn, _without(finder, receipt)))
    for run in entry.runs:
        row = connection.execute(_RUN, (entry.user, run)).fetchone()
        if row is not None:
            texts = [finder.without(text, MARK) if text else text for text in row[:4]]
            connection.execute(_PUT_RUN, (entry.user, run, *texts, _without(finder, row[4])))


def _without(finder: Finder, document: str) -> str:
    return dumps(_clean(finder, json.loads(document)))


def _clean(finder: Finder, value: Any) -> Any:
    if isinstance(value, str):
        return finder.without(value, MARK)
    if isinstance(value, list):
        return [_clean(finder, each) for each in value]
    if isinstance(value, dict):
        return {key: _clean(finder, each) for key, each in value.items()}
    return value


def lines(connection: apsw.Connection, entry: ForgetEntry) -> Lines:
    """What lines of logs are to say after the entry was carried out."""
    receipts, runs = {}, {}
    for turn in entry.turns:
        receipt = connection.execute(_RECEIPT, (entry.user, turn)).get
        if receipt is not None:
            receipts[turn] = json.loads(receipt)
    for run in (*entry.runs, *entry.ran):
        row = connection.execute(_RUN, (entry.user, run)).fetchone()
        if row is not None:
            names = ("message", "result", "note", "error")
            runs[run] = {**dict(zip(names, row[:4], strict=True)), "details": json.loads(row[4]), "change": row[5]}
    people = stored_people.past_values(connection, entry.user, entry.past)
    return Lines(people=people, receipts=receipts, runs=runs)
