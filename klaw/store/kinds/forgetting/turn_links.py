"""Links between messages, turns and runs, for forgetting: which turns dealt with messages, what they stored, which runs
they began. A chat is read once, however many of its messages go. Every question names the user."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw

from klaw.domain.message import SHOWN, Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.task import TaskName


def calls(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls in a message's metadata, with all their fields."""
    found = metadata.get("calls")
    fields = ("id", "name", "arguments")
    return [
        {**dict.fromkeys(fields, ""), **call}
        for call in (found if isinstance(found, list) else [])
        if isinstance(call, dict) and all(isinstance(call.get(field, ""), str) for field in fields)
    ]


def by_chat(found: Iterable[Message]) -> dict[ChatId, list[Message]]:
    """Messages of each chat, in their order: a chat is read once, however many of its messages go."""
    chats: dict[ChatId, list[Message]] = {}
    for each in sorted(found, key=lambda message: message.seq):
        chats.setdefault(each.chat, []).append(each)
    return chats


def turns_of(connection: apsw.Connection, user: UserId, chat: ChatId, seqs: Sequence[int]) -> set[str]:
    query = """
    SELECT turn_id, first_seq, last_seq FROM turns
    WHERE chat_id = ?1 AND +user_id = ?2 AND last_seq >= ?3 AND first_seq <= ?4
    """
    rows = connection.execute(query, (chat, user, seqs[0], seqs[-1]))
    return {str(turn) for turn, first, last in rows if bisect_left(seqs, first) < bisect_right(seqs, last)}


def made_by(connection: apsw.Connection, user: UserId, turns: set[str], runs: set[str], first: int) -> set[int]:
    """What turns and runs stored. Commands' answers have neither."""
    query = """
    SELECT rowid FROM messages WHERE user_id = ?1 AND rowid >= ?4 AND role <> 'user' AND metadata <> '{}' AND (
        metadata ->> '$.turn' IN (SELECT value FROM json_each(?2))
        OR metadata ->> '$.sent_from' IN (SELECT value FROM json_each(?2) UNION SELECT value FROM json_each(?3))
        OR metadata ->> '$.run' IN (SELECT value FROM json_each(?3)))
    """
    if not turns and not runs:
        return set()
    bound = (user, json.dumps(sorted(turns)), json.dumps(sorted(runs)), first)
    return {row[0] for row in connection.execute(query, bound)}


_OTHERS = """
SELECT first_seq FROM turns
WHERE chat_id = ?1 AND first_seq > ?2 AND turn_id NOT IN (SELECT value FROM json_each(?3)) ORDER BY first_seq
"""
_CUT_OFF = """
SELECT seq, metadata ->> '$.turn' FROM messages
WHERE chat_id = ?1 AND seq > ?2 AND seq < ?3 AND type IN ('tool_call', 'tool_result')
    AND metadata ->> '$.turn' IS NOT NULL AND NOT EXISTS (SELECT 1 FROM turns WHERE turn_id = metadata ->> '$.turn')
"""


def interrupted(connection: apsw.Connection, chat: ChatId, seqs: Sequence[int], turns: set[str]) -> set[str]:
    """Turns on the messages that a kill cut off in the middle of their rounds: they have no record, and another one
    went on with them. Their rows stand between a message and the next turn on others."""
    others = [row[0] for row in connection.execute(_OTHERS, (chat, seqs[0], json.dumps(sorted(turns))))] + [1 << 62]

    def end_of(seq: int) -> int:
        return int(others[bisect_right(others, seq)])

    rows = connection.execute(_CUT_OFF, (chat, seqs[0], end_of(seqs[-1])))
    return {str(turn) for seq, turn in rows if seq < end_of(seqs[bisect_left(seqs, seq) - 1])}


def results(connection: apsw.Connection, chat: ChatId, asked: Sequence[Message]) -> set[int]:
    """The results of the messages' calls."""
    query = """
    SELECT rowid, seq, metadata ->> '$.turn', metadata ->> '$.call' FROM messages
    WHERE chat_id = ?1 AND seq > ?2 AND type = 'tool_result'
    """
    since: dict[tuple[object, str], int] = {}
    for each in asked:
        for call in calls(each.metadata):
            since.setdefault((each.metadata.get("turn"), call["id"]), each.seq)
    rows = connection.execute(query, (chat, asked[0].seq))
    return {rowid for rowid, seq, turn, call in rows if seq > since.get((turn, call), seq)}


_SHOWN = f"""
SELECT rowid FROM messages WHERE user_id = ? AND role = 'system' AND type = 'command' AND metadata ->> '$.{SHOWN}' = 1
ORDER BY rowid
"""  # noqa: S608 - a constant


def shown(connection: apsw.Connection, user: UserId) -> tuple[int, ...]:
    """Row ids of answers that showed what would be forgotten."""
    return tuple(rowid for (rowid,) in connection.execute(_SHOWN, (user,)))


def runs_asked(connection: apsw.Connection, user: UserId, name: TaskName, message: str, *, spawned: bool) -> set[str]:
    """The runs of a task, or the subagents of a name, that were asked something."""
    query = "SELECT id FROM runs WHERE user_id = ?1 AND task = ?2 AND trim(message) = ?3 AND (kind = 'spawned') = ?4"
    return {str(run) for (run,) in connection.execute(query, (user, name, message, spawned))}


def with_children(connection: apsw.Connection, user: UserId, known: set[str], maybe: Sequence[str]) -> set[str]:
    """Runs, those of some other ids that there are, and all that they spawned."""
    known_runs = "SELECT id FROM runs WHERE user_id = ?1 AND id IN (SELECT value FROM json_each(?2))"
    children = """
    WITH RECURSIVE mine (id) AS (
        SELECT value FROM json_each(?2)
        UNION SELECT r.id FROM runs AS r JOIN mine ON r.parent = mine.id WHERE r.user_id = ?1)
    SELECT id FROM mine
    """
    found = known | {str(run) for (run,) in connection.execute(known_runs, (user, json.dumps(maybe)))}
    rows = connection.execute(children, (user, json.dumps(sorted(found)))) if found else ()
    return {str(run) for (run,) in rows}


def runs_of_tasks(connection: apsw.Connection, user: UserId, tasks: Sequence[TaskName]) -> set[str]:
    """The runs of tasks, whatever they asked; not of subagents of the same name."""
    query = "SELECT id FROM runs WHERE user_id = ?1 AND task IN (SELECT value FROM json_each(?2)) AND kind <> 'spawned'"
    return {str(run) for (run,) in connection.execute(query, (user, json.dumps(tasks)))}


def last_in(connection: apsw.Connection, chats: Iterable[ChatId]) -> tuple[tuple[object, ...], ...]:
    """The last message and turn of each chat."""
    query = """
    SELECT chat_id, last_seq, (SELECT max(rowid) FROM turns WHERE turns.chat_id = sessions.chat_id) FROM sessions
    WHERE chat_id IN (SELECT value FROM json_each(?)) ORDER BY chat_id
    """
    return tuple(connection.execute(query, (json.dumps(sorted(set(chats))),)))


def linked_since(connection: apsw.Connection, user: UserId, rowid: int) -> bool:
    """Whether a user has had messages after a row id that may have to do with others: files, answers of commands, and
    what a turn or a run sent."""
    query = """
    SELECT EXISTS (SELECT 1 FROM messages WHERE rowid > ? AND user_id = ? AND (
        instr(metadata, '"files":') OR instr(metadata, '"sent_from":') OR role = 'system' AND type = 'command'))
    """
    return bool(connection.execute(query, (rowid, user)).get)
