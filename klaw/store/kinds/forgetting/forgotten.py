"""Taking messages out of the database, and texts out of receipts and runs. Every question names the user.

A forgotten message keeps its row, number and id, so that no client misses a number, as a command's row without content:
nothing that reads conversations looks at those.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import apsw

from klaw.domain import context_used
from klaw.domain.context_used import KEY
from klaw.domain.forget import FORGOTTEN, MARK, each_text
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import Finder
from klaw.store.engine.full_text import unindex_row
from klaw.store.kinds import messages, topics, turns
from klaw.store.rows import dumps

_ERASE = """
UPDATE messages SET role = 'system', type = 'command', content = '', metadata = ?2, tokens = 0, embedded = 0,
    topic_id = NULL WHERE rowid = ?1
"""
_NEXT = """
SELECT rowid FROM messages
WHERE chat_id = ? AND seq > ? AND role IN ('user', 'assistant') AND type IN ('text', 'scheduled') ORDER BY seq LIMIT 1
"""
_TOPIC_CHARS = """
UPDATE topics SET chars = (SELECT coalesce(sum(length(content)), 0) FROM messages WHERE topic_id = topics.id)
WHERE id = (SELECT topic_id FROM messages WHERE rowid = ?)
"""
_NO_TOPIC_VECTOR = "DELETE FROM vec_topics WHERE rowid = (SELECT topic_id FROM messages WHERE rowid = ?)"
_LEFT = f"""
SELECT rowid FROM messages WHERE +user_id = ? AND rowid IN (SELECT value FROM json_each(?))
    AND metadata ->> '$.{FORGOTTEN}' IS NULL ORDER BY rowid
"""  # noqa: S608 - a constant
_DAYS = """
SELECT DISTINCT chat_id, substr(created_at, 1, 10) FROM messages
WHERE +user_id = ? AND rowid IN (SELECT value FROM json_each(?)) ORDER BY 1, 2
"""


def tombstone(time: str) -> dict[str, str]:
    """The metadata of a forgotten message's row."""
    return {FORGOTTEN: time}


def erase(connection: apsw.Connection, user: UserId, own: Sequence[Message], entry: int, at: str) -> None:
    """Leave nothing of messages but their numbers, by an entry of the memory journal."""
    for message in own:
        if messages.MESSAGE.has_text(connection, message.rowid):
            unindex_row(connection, "messages", message.rowid)
    left = topics.topics_of(connection, user, [each.rowid for each in own])
    connection.executemany(_ERASE, [(each.rowid, dumps(tombstone(at))) for each in own])
    turns.forget_used(connection, [(each.chat, each.seq) for each in own])
    for topic in set(left.values()):  # that the entry does not name: it was made between two starts
        topics.count_again(connection, user, topic, entry, at)
    for chat in {message.chat for message in own if messages.MODEL_CHOICE in message.metadata}:
        messages.choose_model_again(connection, chat)


def behind(connection: apsw.Connection, own: Sequence[Message]) -> list[Message]:
    """The messages behind some, which were embedded in the light of them (``memory.passage``)."""
    rowids, places = {each.rowid for each in own}, {(each.chat, each.seq) for each in own}
    last = [each for each in own if (each.chat, each.seq + 1) not in places]
    following = {connection.execute(_NEXT, (each.chat, each.seq)).get for each in last} - {None, *rowids}
    return messages.by_rowids(connection, sorted(following))


def embed_again(connection: apsw.Connection, rowids: Sequence[int]) -> None:
    connection.executemany("UPDATE messages SET embedded = 0 WHERE rowid = ?", [(rowid,) for rowid in rowids])


def text_changed(connection: apsw.Connection, rowid: int) -> None:
    """What was made of a message's text is made again."""
    embed_again(connection, [rowid])
    connection.execute(_TOPIC_CHARS, (rowid,))
    connection.execute(_NO_TOPIC_VECTOR, (rowid,))


def left(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[int]:
    """Row ids of the messages that are not forgotten yet."""
    return [rowid for (rowid,) in connection.execute(_LEFT, (user, dumps(list(rowids))))]


def log_paths(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[str]:
    days = connection.execute(_DAYS, (user, dumps(list(rowids))))
    return [messages.day_path(ChatId(chat), day) for chat, day in days]


_PUT_RECEIPT = "UPDATE turns SET receipt = ?3 WHERE user_id = ?1 AND turn_id = ?2"
_RUNS = """
SELECT id, message, result, note, error, details, change FROM runs
WHERE user_id = ? AND id IN (SELECT value FROM json_each(?))
"""
_PUT_RUN = """
UPDATE runs SET message = ?3, result = ?4, note = ?5, error = ?6, details = ?7 WHERE user_id = ?1 AND id = ?2
"""
_EMPTY = """
UPDATE runs SET message = ?3, result = '', note = NULL,
    details = json_object('usage', json(coalesce(details -> '$.usage', '{}')))
WHERE user_id = ?1 AND id IN (SELECT value FROM json_each(?2))
"""
_GIVEN = f"""
SELECT turn_id FROM turns WHERE user_id = ?1 AND turn_id IN (SELECT value FROM json_each(?2))
    AND instr(receipt, '"{KEY}"') ORDER BY turn_id
"""  # noqa: S608 - a constant


def empty_runs(connection: apsw.Connection, user: UserId, runs: Sequence[str]) -> None:
    """Leave nothing of a user's runs but what they cost."""
    connection.execute(_EMPTY, (user, dumps(list(runs)), MARK))


def take_out_names(
    connection: apsw.Connection, user: UserId, finder: Finder, receipts: Sequence[str], runs: Sequence[str]
) -> None:
    """Put MARK in place of people's names in the receipts of turns and in runs."""

    def without(document: Any) -> str:
        return dumps(each_text(document, lambda text: finder.without(text, MARK)))

    for turn, receipt in turns.receipts(connection, user, receipts).items():
        connection.execute(_PUT_RECEIPT, (user, turn, without(receipt)))
    for run, found in run_texts(connection, user, runs).items():
        texts = [finder.without(text, MARK) if text else text for text in list(found.values())[:4]]
        connection.execute(_PUT_RUN, (user, run, *texts, without(found["details"])))


def run_texts(connection: apsw.Connection, user: UserId, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Texts, details and ``change`` of the last state of each of a user's runs."""
    names = ("message", "result", "note", "error")
    found: list[Any] = connection.execute(_RUNS, (user, dumps(list(runs)))).fetchall()
    return {
        run: {**dict(zip(names, texts, strict=True)), "details": json.loads(details), "change": change}
        for run, *texts, details, change in found
    }


def given_passages(connection: apsw.Connection, user: UserId, own: Sequence[Message]) -> tuple[str, ...]:
    """The turns of a user's answers whose receipts hold texts of passages."""
    found = dumps(sorted({str(each.metadata["turn"]) for each in own if "turn" in each.metadata}))
    return tuple(str(turn) for (turn,) in connection.execute(_GIVEN, (user, found)))


def blank_receipts(connection: apsw.Connection, user: UserId, gone: Collection[str], of_turns: Sequence[str]) -> None:
    """Take the texts of passages out of a user's receipts.

    Args:
        gone: ids of the bases and sources that they are of; none: of all.
        of_turns: whose receipts.
    """

    def goes(each: Mapping[str, Any]) -> bool:
        return not gone or not {each.get("base"), each.get("source")}.isdisjoint(gone)

    is_gone: Callable[[Mapping[str, Any]], bool] = goes
    for turn, receipt in turns.receipts(connection, user, of_turns).items():
        connection.execute(_PUT_RECEIPT, (user, turn, dumps(context_used.blank(receipt, is_gone))))
