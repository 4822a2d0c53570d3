"""SQL of a search over a user's whole history and over a user's topics.

All filters act inside the searches. By vector: the codes are filtered while they are read, and the exact step repeats
the conditions on the messages themselves. By words: ranked matches are checked against the messages, the best first,
until enough have passed. Dates are compared with ``created_at``, which row ids may not follow after a restoration.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, tzinfo
from typing import Any

import apsw
import attrs

from klaw.actor.clock import from_iso, iso
from klaw.domain.days import local_day
from klaw.domain.message import Message, Role
from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import messages, topic_vectors, topics
from klaw.store.kinds.chats import TEMPORARY
from klaw.store.kinds.messages import MESSAGE, SESSION, ChatRow
from klaw.store.kinds.tasks import days_zone
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.kinds.topic_vectors import Near
from klaw.store.search import fulltext, vector_codes, vector_search
from klaw.store.search.fulltext import ranked
from klaw.store.search.ranked_lists import Lists, Steps, place_statements, places_of
from klaw.store.search.vector_search import Neighbour, nearest_of

MAX_UNCODED = 2_000
"""Vectors without a code that one search measures, the newest ones."""
_CHECKED_AT_ONCE = 256


@attrs.frozen(kw_only=True)
class HistoryFilters:
    """Which of a user's messages a search may return. Times are ISO-8601 UTC like ``created_at``."""

    user: UserId
    chat: ChatId | None = None
    since: str | None = None
    until: str | None = None
    """Not included, while ``since`` and ``last_rowid`` are."""
    role: Role | None = None
    last_rowid: int | None = None


# Users are compared first: whatever else a filter allows, a row of another user is never returned. Temporary chats are
# searched only where they are named.
_FILTER = f"""
m.user_id = ?2 AND (?3 IS NULL OR m.chat_id = ?3) AND (?4 IS NULL OR m.created_at >= ?4)
    AND (?5 IS NULL OR m.created_at < ?5) AND (?6 IS NULL OR m.role = ?6) AND (?7 IS NULL OR m.rowid <= ?7)
    AND (?3 IS NOT NULL OR m.chat_id NOT IN {TEMPORARY})
"""
_FOUND = f"FROM json_each(?1) AS r CROSS JOIN {MESSAGE.table} AS m ON m.rowid = r.value"


def _bindings(filters: HistoryFilters) -> tuple[Any, ...]:
    since, until = (iso(from_iso(each)) if each is not None else None for each in (filters.since, filters.until))
    return filters.user, filters.chat, since, until, filters.role, filters.last_rowid


_LAST_ROWID = f"SELECT coalesce(max(rowid), 0) FROM {MESSAGE.table}"  # noqa: S608 - constant names
_COUNT_OF_USER = f"SELECT coalesce(sum(last_seq), 0) FROM {SESSION.table} WHERE user_id = ?"  # noqa: S608 - likewise
_LAST_USE = f"SELECT max(updated_at) FROM {SESSION.table} WHERE user_id = ?"  # noqa: S608 - likewise


def history_end(connection: apsw.Connection, user: UserId) -> tuple[int, date | None, tzinfo | None]:
    """Row id of the newest message of all users (0: there is none), the day of the user's last one, and the zone of the
    user's days."""
    used, zone = connection.execute(_LAST_USE, (user,)).get, days_zone(connection, user)
    return int(connection.execute(_LAST_ROWID).get), local_day(from_iso(used), zone) if used is not None else None, zone


def search_history(
    connection: apsw.Connection, vector: bytes | None, words: Sequence[str], filters: HistoryFilters, depth: int
) -> Lists:
    """Search a user's history by vector (if there is one) and by words; each list has at most ``depth`` results."""
    with snapshot(connection):
        chat = messages.session(connection, filters.chat) if filters.chat is not None else None
        if filters.chat is not None and (chat is None or chat.user != filters.user):
            return Lists()
        steps = Steps(connection)
        near: tuple[list[Neighbour], bool] | None = None
        if vector is not None and vector_model.current(connection) is not None:
            near = steps.run("vectors", lambda: _nearest(connection, vector, filters, chat, depth))
        neighbours, complete = near or ([], True)
        found = steps.run("words", lambda: _hits(connection, words, filters, chat, depth)) if words else None
        hits, plan = found or ([], fulltext.WordPlan(words=words))
        of_hits, of_near = [hit.rowid for hit in hits], [near.rowid for near in neighbours]
        return steps.lists(
            neighbours=neighbours,
            hits=hits,
            places=places_of(_PLACES, connection, _bindings(filters), of_hits, of_near),
            vectors_complete=complete,
            words_left_out=plan.left_out,
            newest_only=plan.first_rowid > 0,
        )


def read_messages(connection: apsw.Connection, rowids: Sequence[int], user: UserId) -> list[Message]:
    """A user's messages by their row ids, in the given order; what is gone, or another's, is left out."""
    return [message for message in messages.by_rowids(connection, rowids) if message.user == user]


_UNCODED = f"""
SELECT m.rowid FROM vec_messages_rowids AS r CROSS JOIN {MESSAGE.table} AS m ON m.rowid = r.rowid
WHERE r.rowid > ?1 AND {_FILTER}
ORDER BY r.rowid DESC LIMIT ?8
"""  # noqa: S608 - constant parts
# "distance" is taken: a hidden column of vec0.
_MEASURE = f"""
SELECT m.rowid, vec_distance_cosine(v.embedding, ?8) AS measured
{_FOUND} CROSS JOIN vec_messages AS v ON v.rowid = m.rowid WHERE {_FILTER} AND measured IS NOT NULL
"""


def _nearest(
    connection: apsw.Connection, vector: bytes, filters: HistoryFilters, chat: ChatRow | None, depth: int
) -> tuple[list[Neighbour], bool]:
    def measure(rowids: list[int]) -> list[Neighbour]:
        each_once = list(dict.fromkeys(rowids))  # one that was replaced and came back may have codes of before
        bound = (json.dumps(each_once), *_bindings(filters), vector)
        return [Neighbour(*row) for row in connection.execute(_MEASURE, bound)]

    now = vector_codes.state(connection)
    found: list[Neighbour] = []
    if now is not None:
        fine = max(vector_search.FINE, 4 * depth)
        wanted = vector_codes.Filters(
            user=filters.user,
            chat_key=chat.key if chat is not None else None,
            since_s=math.floor(from_iso(filters.since)) if filters.since is not None else None,
            until_s=math.ceil(from_iso(filters.until)) if filters.until is not None else None,
            role=filters.role,
            last_rowid=filters.last_rowid,
        )
        rough = max(vector_search.ROUGH, 4 * fine)
        found = nearest_of(vector_codes.candidates(connection, now, vector, wanted, rough, fine), measure, depth)
        if now.complete:
            return found, True
    bindings = (now.coded if now is not None else 0, *_bindings(filters), MAX_UNCODED)
    uncoded = [int(rowid) for (rowid,) in connection.execute(_UNCODED, bindings)]
    both = {each.rowid: each for each in [*found, *measure(uncoded)]}
    best = sorted(both.values(), key=lambda each: (each.distance, each.rowid))
    return best[:depth], len(uncoded) < MAX_UNCODED


def _hits(
    connection: apsw.Connection, words: Sequence[str], filters: HistoryFilters, chat: ChatRow | None, depth: int
) -> tuple[list[fulltext.TextHit], fulltext.WordPlan]:
    total = connection.execute(_LAST_ROWID).get
    rows = chat.last_seq if chat is not None else connection.execute(_COUNT_OF_USER, (filters.user,)).get
    plan = fulltext.plan(connection, words, rows, total)
    if chat is not None:
        scope: str | None = messages.chat_word(chat.key)
    else:
        # The word of a user who owns most rows would cost more than it saves: all of its rows would be read.
        scope = messages.user_word(filters.user) if rows < total / 2 else None
    scores = fulltext.scores(connection, plan.words, scope, (plan.first_rowid, total + 1), rows)
    return list(itertools.islice(_allowed(connection, scores.ranked(), filters), depth)), plan


_ALLOWED = f"SELECT m.rowid {_FOUND} WHERE {_FILTER}"


def _allowed(
    connection: apsw.Connection, ranked: Sequence[tuple[int, float, int]], filters: HistoryFilters
) -> Iterator[fulltext.TextHit]:
    for start in range(0, len(ranked), _CHECKED_AT_ONCE):
        part = ranked[start : start + _CHECKED_AT_ONCE]
        rowids = json.dumps([rowid for rowid, *_ in part])
        allowed = {row[0] for row in connection.execute(_ALLOWED, (rowids, *_bindings(filters)))}
        yield from (fulltext.TextHit(*each) for each in part if each[0] in allowed)


_PLACES = place_statements(_FILTER, "n.segment = m.segment", "n.segment = m.segment")


@attrs.frozen(kw_only=True)
class TopicLists:
    near: Sequence[Near] = ()
    by_words: Sequence[TopicId] = ()
    of_messages: Mapping[int, TopicId] = attrs.Factory(dict)
    """Topics of the messages that were asked about."""
    topics: Mapping[TopicId, Topic] = attrs.Factory(dict)


def search_topics(
    connection: apsw.Connection,
    vector: bytes | None,
    words: Sequence[str],
    rowids: Sequence[int],
    filters: HistoryFilters,
    *,
    min_cosine: float,
    depth: int,
) -> TopicLists:
    """Search a user's topics by vector (of at least ``min_cosine``), by the words of their summaries, and by messages
    that a search found. A topic is of a time if some of it is."""
    with snapshot(connection):
        near: Sequence[Near] = ()
        if vector is not None:
            near = topic_vectors.nearest(connection, filters.user, vector, min_cosine=min_cosine, limit=depth)
        hits = ranked(connection, TOPIC, "summary", filters.user, words, depth) if words else []
        by_words = [TopicId(hit.rowid) for hit in hits]
        of_messages = topics.topics_of(connection, filters.user, rowids)
        ids = {each.topic for each in near} | set(by_words) | set(of_messages.values())
        named = topics.by_ids(connection, filters.user, sorted(ids))
        known = {topic.id: topic for topic in named.values() if _passes(topic, filters)}
    return TopicLists(
        near=[each for each in near if each.topic in known],
        by_words=[topic for topic in by_words if topic in known],
        of_messages={rowid: topic for rowid, topic in of_messages.items() if topic in known},
        topics=known,
    )


def _passes(topic: Topic, filters: HistoryFilters) -> bool:
    return (
        (filters.chat is None or topic.chat == filters.chat)
        and (filters.since is None or topic.last_at >= filters.since)
        and (filters.until is None or topic.first_at < filters.until)
    )
