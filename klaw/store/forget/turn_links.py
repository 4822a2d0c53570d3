"""SQL of forgetting: from messages to the turns that dealt with them, and to what those stored. A chat is read once,
however many of its messages go."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw

from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId


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


_TURNS = """
SELECT turn_id, first_seq, last_seq FROM turns
WHERE chat_id = ?1 AND +user_id = ?2 AND last_seq >= ?3 AND first_seq <= ?4
"""


def turns_of(connection: apsw.Connection, user: UserId, chat: ChatId, seqs: Sequence[int]) -> set[str]:
    """Turns that dealt with one of the messages."""
    rows = connection.execute(_TURNS, (chat, user, seqs[0], seqs[-1]))
    return {str(turn) for turn, first, last in rows if bisect_left(seqs, first) < bisect_right(seqs, last)}


_MADE = """
SELECT rowid FROM messages WHERE user_id = ?1 AND rowid >= ?4 AND role <> 'user' AND metadata <> '{}' AND (
    metadata ->> '$.turn' IN (SELECT value FROM json_each(?2))
    OR metadata ->> '$.sent_from' IN (SELECT value FROM json_each(?2) UNION SELECT value FROM json_each(?3))
    OR metadata ->> '$.run' IN (SELECT value FROM json_each(?3)))
"""


def made_by(connection: apsw.Connection, user: UserId, turns: set[str], runs: set[str], first: int) -> set[int]:
    """What turns and runs stored. Commands' answers have neither."""
    if not turns and not runs:
        return set()
    bound = (user, json.dumps(sorted(turns)), json.dumps(sorted(runs)), first)
    return {row[0] for row in connection.execute(_MADE, bound)}


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


_RESULTS = """
SELECT rowid, seq, metadata ->> '$.turn', metadata ->> '$.call' FROM messages
WHERE chat_id = ?1 AND seq > ?2 AND type = 'tool_result'
"""


def results(connection: apsw.Connection, chat: ChatId, asked: Sequence[Message]) -> set[int]:
    """The results of the messages' calls."""
    since: dict[tuple[object, str], int] = {}
    for each in asked:
        for call in calls(each.metadata):
            since.setdefault((each.metadata.get("turn"), call["id"]), each.seq)
    rows = connection.execute(_RESULTS, (chat, asked[0].seq))
    return {rowid for rowid, seq, turn, call in rows if seq > since.get((turn, call), seq)}
