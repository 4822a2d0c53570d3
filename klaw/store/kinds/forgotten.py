"""What forgetting asks of several nouns, and takes out of their rows. Every question names the user.

A forgotten message keeps its row, number and id, so that no client misses a number, as a command's row without content:
nothing that reads conversations looks at those.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import apsw

from klaw.domain import context_used
from klaw.domain.context_used import KEY
from klaw.domain.forget import FORGOTTEN, MARK, each_text
from klaw.domain.message import SHOWN, Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import Finder, PersonId, normal_name
from klaw.domain.task import TaskName
from klaw.store.engine.tables import unindex_row
from klaw.store.kinds import messages, topics, turns
from klaw.store.kinds.people import by_names, history, merged_into
from klaw.store.rows import dumps


def erase(connection: apsw.Connection, user: UserId, own: Sequence[Message], entry: int, at: str) -> None:
    """Leave nothing of messages but their numbers, by an entry of the memory journal."""
    query = """
    UPDATE messages SET role = 'system', type = 'command', content = '', metadata = ?2, tokens = 0, embedded = 0,
        topic_id = NULL WHERE rowid = ?1
    """
    for message in own:
        if messages.MESSAGE.has_text(connection, message.rowid):
            unindex_row(connection, "messages", message.rowid)
    left = topics.topics_of(connection, user, [each.rowid for each in own])
    gone = dumps({FORGOTTEN: at})
    for each in own:
        erases = _ERASE_REPLACED if replaced(connection, each.rowid) else query
        connection.execute(erases, (each.rowid, gone))
    turns.forget_used(connection, [(each.chat, each.seq) for each in own])
    for topic in set(left.values()):  # that the entry does not name: it was made between two starts
        topics.count_again(connection, user, topic, entry, at)
    for chat in {message.chat for message in own if not message.metadata.keys().isdisjoint(messages.CHOICES)}:
        messages.choose_again(connection, chat)


_ERASE_REPLACED = """
UPDATE replaced_messages SET role = 'system', type = 'command', content = '', metadata = ?2, tokens = 0 WHERE rowid = ?1
"""


def replaced(connection: apsw.Connection, rowid: int) -> bool:
    return bool(connection.execute("SELECT count(*) FROM replaced_messages WHERE rowid = ?", (rowid,)).get)


def rewrite_replaced(connection: apsw.Connection, rowid: int, texts: Sequence[object]) -> None:
    """Give a replaced message another content and metadata."""
    connection.execute("UPDATE replaced_messages SET content = ?2, metadata = ?3 WHERE rowid = ?1", (rowid, *texts))


def embed_following(connection: apsw.Connection, own: Sequence[Message]) -> list[Message]:
    """Have the messages behind some embedded again, because a passage begins with the message before
    (``memory.embed.passage``). Returns them."""
    query = """
    SELECT rowid FROM messages
    WHERE chat_id = ? AND seq > ? AND role IN ('user', 'assistant') AND type IN ('text', 'scheduled')
    ORDER BY seq LIMIT 1
    """
    rowids, places = {each.rowid for each in own}, {(each.chat, each.seq) for each in own}
    last = [each for each in own if (each.chat, each.seq + 1) not in places]
    following = {connection.execute(query, (each.chat, each.seq)).get for each in last} - {None, *rowids}
    found = messages.by_rowids(connection, sorted(following))
    connection.executemany(_EMBED_AGAIN, [(each.rowid,) for each in found])
    return found


_EMBED_AGAIN = "UPDATE messages SET embedded = 0 WHERE rowid = ?"


def text_changed(connection: apsw.Connection, rowid: int) -> None:
    """What was made of a message's text is made again."""
    topic_chars = """
    UPDATE topics SET chars = (SELECT coalesce(sum(length(content)), 0) FROM messages WHERE topic_id = topics.id)
    WHERE id = (SELECT topic_id FROM messages WHERE rowid = ?)
    """
    no_topic_vector = "DELETE FROM vec_topics WHERE rowid = (SELECT topic_id FROM messages WHERE rowid = ?)"
    for statement in (_EMBED_AGAIN, topic_chars, no_topic_vector):
        connection.execute(statement, (rowid,))


def left(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[int]:
    """Row ids of the messages that are not forgotten yet."""
    query = f"""
    SELECT rowid FROM messages_whole WHERE +user_id = ? AND rowid IN (SELECT value FROM json_each(?))
        AND metadata ->> '$.{FORGOTTEN}' IS NULL ORDER BY rowid
    """  # noqa: S608 - a constant
    return [rowid for (rowid,) in connection.execute(query, (user, dumps(list(rowids))))]


def log_paths(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[str]:
    query = """
    SELECT DISTINCT chat_id, substr(created_at, 1, 10) FROM messages
    WHERE +user_id = ? AND rowid IN (SELECT value FROM json_each(?)) ORDER BY 1, 2
    """
    days = connection.execute(query, (user, dumps(list(rowids))))
    return [messages.day_path(ChatId(chat), day) for chat, day in days]


def empty_runs(connection: apsw.Connection, user: UserId, runs: Sequence[str]) -> None:
    """Leave nothing of a user's runs but what they cost."""
    query = """
    UPDATE runs SET message = ?3, result = '', note = NULL,
        details = json_object('usage', json(coalesce(details -> '$.usage', '{}')))
    WHERE user_id = ?1 AND id IN (SELECT value FROM json_each(?2))
    """
    connection.execute(query, (user, dumps(list(runs)), MARK))


_PUT_RECEIPT = "UPDATE turns SET receipt = ?3 WHERE user_id = ?1 AND turn_id = ?2"


def take_out_names(
    connection: apsw.Connection, user: UserId, finder: Finder, receipts: Sequence[str], runs: Sequence[str]
) -> None:
    """Put MARK in place of people's names in the receipts of turns and in runs."""
    put_run = """
    UPDATE runs SET message = ?3, result = ?4, note = ?5, error = ?6, details = ?7 WHERE user_id = ?1 AND id = ?2
    """

    def without(document: Any) -> Any:
        return each_text(document, lambda text: finder.without(text, MARK))

    for turn, receipt in turns.receipts(connection, user, receipts).items():
        connection.execute(_PUT_RECEIPT, (user, turn, dumps(without(receipt))))
    for run, found in run_texts(connection, user, runs).items():
        *texts, details, _change = map(without, found.values())
        connection.execute(put_run, (user, run, *texts, dumps(details)))


def run_texts(connection: apsw.Connection, user: UserId, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Texts, details and ``change`` of the last state of each of a user's runs."""
    names = ("message", "result", "note", "error", "details", "change")
    query = f"SELECT id, {', '.join(names)} FROM runs WHERE user_id = ? AND id IN (SELECT value FROM json_each(?))"  # noqa: S608
    rows: list[Any] = connection.execute(query, (user, dumps(list(runs)))).fetchall()
    found = {run: dict(zip(names, values, strict=True)) for run, *values in rows}
    return {run: {**each, "details": json.loads(each["details"])} for run, each in found.items()}


def given_passages(connection: apsw.Connection, user: UserId, own: Sequence[Message]) -> tuple[str, ...]:
    """The turns of a user's answers whose receipts hold texts of passages."""
    query = f"""
    SELECT turn_id FROM turns WHERE user_id = ?1 AND turn_id IN (SELECT value FROM json_each(?2))
        AND instr(receipt, '"{KEY}"') ORDER BY turn_id
    """  # noqa: S608 - a constant
    found = dumps(sorted({str(each.metadata["turn"]) for each in own if "turn" in each.metadata}))
    return tuple(str(turn) for (turn,) in connection.execute(query, (user, found)))


def blank_receipts(connection: apsw.Connection, user: UserId, gone: Collection[str], of_turns: Sequence[str]) -> None:
    """Take the texts of passages out of receipts of a user's turns: of all with their names, or only of bases and
    sources (ids)."""

    def is_gone(each: Mapping[str, Any]) -> bool:
        return not gone or not {each.get("base"), each.get("source")}.isdisjoint(gone)

    for turn, receipt in turns.receipts(connection, user, of_turns).items():
        connection.execute(_PUT_RECEIPT, (user, turn, dumps(context_used.blank(receipt, is_gone, names=not gone))))


def forget_sources(connection: apsw.Connection, of_turns: Sequence[str]) -> None:
    """The answers of turns do not say any more which passages they were given."""
    for table in ("messages", "replaced_messages"):
        query = f"""
        UPDATE {table} SET metadata = json_remove(metadata, '$.{KEY}') WHERE (chat_id, seq) IN (
            SELECT chat_id, seq FROM kb_used WHERE turn_id IN (SELECT value FROM json_each(?)))
        """  # noqa: S608 - constants
        connection.execute(query, (dumps(list(of_turns)),))


# -- names that people had ---------------------------------------------------------------------------------------------


def own_names(connection: apsw.Connection, user: UserId, persons: Iterable[PersonId]) -> dict[str, str]:
    """The names that some people, who are all one, have or had, by their normal form; without those that they had for a
    time only, and that are somebody else's: a merge that was taken back makes nobody another one."""
    mine = set(persons)
    ever: dict[str, str] = {}
    last: set[str] = set()
    for person in sorted(mine):
        states = [change.value.names for change in history(connection, user, person) if change.value is not None]
        for name in (name for names in states for name in names):
            ever.setdefault(normal_name(name), name)
        last.update(normal_name(name) for names in states[-1:] for name in names)
    others = [each for each in by_names(connection, user, list(ever.values())) if each.id not in mine]
    theirs = {normal_name(name) for each in others for name in each.names} - last
    return {normal: name for normal, name in ever.items() if normal not in theirs}


# Only the last state of each counts: a merge that was taken back made nobody somebody else.
_DEAD = """
SELECT c.person_id, c.value FROM person_changes AS c WHERE c.user_id = ?1 AND c.value IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM people AS p WHERE p.user_id = c.user_id AND p.id = c.person_id)
    AND c.entry = (SELECT max(entry) FROM person_changes
        WHERE user_id = c.user_id AND person_id = c.person_id AND value IS NOT NULL)
"""


def all_names(
    connection: apsw.Connection, user: UserId, person: PersonId
) -> tuple[tuple[str, ...], tuple[PersonId, ...]]:
    """The names that a user's person has or had, and all who are that one: those who were merged into it, and those of
    its names who were removed. Of an unknown id nothing."""
    merged = [each.id for each in merged_into(connection, user, person)]
    same = dict.fromkeys(each for each in (person, *merged) if history(connection, user, each))
    names = own_names(connection, user, same)
    for gone, value in connection.execute(_DEAD, (user,)) if names else ():
        past = json.loads(value)
        if any(normal_name(name) in names for name in (past["name"], *past["aliases"])):
            same[PersonId(gone)] = None
    return tuple(names.values()), tuple(same)


def past_of_others(connection: apsw.Connection, user: UserId, gone: Collection[PersonId]) -> tuple[int, ...]:
    """Entries of the memory journal by which what was known of somebody else named these people, and does no more.
    Namesakes are left alone."""
    query = "SELECT entry, person_id, value FROM person_changes WHERE user_id = ? AND value IS NOT NULL ORDER BY entry"
    finders = [Finder((name,)) for name in own_names(connection, user, gone).values()] if gone else []
    pasts: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for entry, person, value in connection.execute(query, (user,)) if finders else ():
        if person not in gone:
            pasts.setdefault(person, []).append((entry, json.loads(value)))
    return tuple(sorted(entry for past in pasts.values() for entry in _naming(past, finders)))


def _naming(past: Sequence[tuple[int, Mapping[str, Any]]], finders: Sequence[Finder]) -> list[int]:
    now = past[-1][1]
    others = [each for each in finders if not any(map(each.finds, (now["name"], *now["aliases"])))]
    left = _texts(now)
    return [entry for entry, was in past if any(each.finds(text) for text in _texts(was) - left for each in others)]


def _texts(value: Mapping[str, Any]) -> set[str]:
    return {value["name"], *value["aliases"], value["relation"]}


def forget_past(connection: apsw.Connection, user: UserId, entries: Sequence[int]) -> None:
    """Let people have been at some time what they are, or were last."""
    query = """
    UPDATE person_changes AS c SET value = (
        SELECT value FROM person_changes WHERE user_id = c.user_id AND person_id = c.person_id AND value IS NOT NULL
        ORDER BY entry DESC LIMIT 1)
    WHERE user_id = ?1 AND value IS NOT NULL AND entry IN (SELECT value FROM json_each(?2))
    """
    connection.execute(query, (user, json.dumps(list(entries))))


def past_values(connection: apsw.Connection, user: UserId, entries: Sequence[int]) -> dict[int, Any]:
    """What the journal's lines of these entries are to say."""
    query = """
    SELECT entry, value FROM person_changes
    WHERE user_id = ?1 AND value IS NOT NULL AND entry IN (SELECT value FROM json_each(?2))
    """
    return {entry: json.loads(value) for entry, value in connection.execute(query, (user, json.dumps(list(entries))))}


# -- links between messages, turns and runs: a chat is read once, however many of its messages go ----------------------


def calls(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls in a message's metadata, with all their fields."""
    found = metadata.get("calls")
    fields = dict.fromkeys(("id", "name", "arguments"), "")
    whole = ({**fields, **call} for call in (found if isinstance(found, list) else []) if isinstance(call, dict))
    return [call for call in whole if all(isinstance(call[field], str) for field in fields)]


def by_chat(found: Iterable[Message]) -> dict[ChatId, list[Message]]:
    """Messages of each chat, in their order."""
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
    SELECT rowid FROM messages_whole WHERE user_id = ?1 AND rowid >= ?4 AND role <> 'user' AND metadata <> '{}' AND (
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
SELECT seq, metadata ->> '$.turn' FROM messages_whole
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
    SELECT rowid, seq, metadata ->> '$.turn', metadata ->> '$.call' FROM messages_whole
    WHERE chat_id = ?1 AND seq > ?2 AND type = 'tool_result'
    """
    since: dict[tuple[object, str], int] = {}
    for each in asked:
        for call in calls(each.metadata):
            since.setdefault((each.metadata.get("turn"), call["id"]), each.seq)
    rows = connection.execute(query, (chat, asked[0].seq))
    return {rowid for rowid, seq, turn, call in rows if seq > since.get((turn, call), seq)}


def shown(connection: apsw.Connection, user: UserId) -> tuple[int, ...]:
    """Row ids of answers that showed what would be forgotten."""
    query = f"""
    SELECT rowid FROM messages
    WHERE user_id = ? AND role = 'system' AND type = 'command' AND metadata ->> '$.{SHOWN}' = 1 ORDER BY rowid
    """  # noqa: S608 - a constant
    return tuple(rowid for (rowid,) in connection.execute(query, (user,)))


def runs_asked(connection: apsw.Connection, user: UserId, name: TaskName, message: str, *, spawned: bool) -> set[str]:
    """The runs of a task, or the subagents of a name, that were asked something."""
    query = "SELECT id FROM runs WHERE user_id = ?1 AND task = ?2 AND trim(message) = ?3 AND (kind = 'spawned') = ?4"
    return {str(run) for (run,) in connection.execute(query, (user, name, message, spawned))}


def with_children(connection: apsw.Connection, user: UserId, maybe: Collection[str]) -> set[str]:
    """Those of some ids that are a user's runs, and all that they spawned."""
    query = """
    WITH RECURSIVE mine (id) AS (
        SELECT id FROM runs WHERE user_id = ?1 AND id IN (SELECT value FROM json_each(?2))
        UNION SELECT r.id FROM runs AS r JOIN mine ON r.parent = mine.id WHERE r.user_id = ?1)
    SELECT id FROM mine
    """
    return {str(run) for (run,) in connection.execute(query, (user, json.dumps(sorted(maybe))))}


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
