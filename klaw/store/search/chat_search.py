"""SQL of recall: the ranked lists of one query in one chat, and what ranking wants to know of the rows in them.

The scope is a condition inside each search: a filter after it would return nothing as soon as messages outside are
nearer. All lists of a query come from one snapshot.
"""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import date, timedelta, tzinfo

import apsw
import attrs

from klaw.actor.clock import from_iso, iso
from klaw.domain.days import local_day, start_of_day
from klaw.domain.message import Message
from klaw.domain.names import ChatId, user_of
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import chats, messages
from klaw.store.kinds.tasks import days_zone
from klaw.store.search import fulltext, vector_search
from klaw.store.search.ranked_lists import Lists, Steps, place_statements, places_of
from klaw.store.search.vector_search import Neighbour


@attrs.frozen(kw_only=True)
class ChatScope:
    """Where recall may look: one chat, from a segment's first message to the window's."""

    chat: ChatId
    first_seq: int
    end_seq: int
    """The first seq that is not searched: the window's first message."""


@attrs.frozen(kw_only=True)
class Depth:
    """Most results of each list; ``spreading`` of the best by words share their scores with their neighbours."""

    vectors: int
    words: int
    spreading: int


def search_chat(
    connection: apsw.Connection,
    vector: bytes | None,
    words: Sequence[str],
    days: Sequence[tuple[date, date]],
    scope: ChatScope,
    depth: Depth,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
    known: Collection[int] = (),
) -> Lists:
    """Search a scope by vector (little-endian float32, if there is one), by content words, and by vector within days.
    Steps that would begin or end after ``seconds`` are named in ``cut``. ``known``: rows whose places are known."""
    with snapshot(connection):
        session = messages.session(connection, scope.chat)
        bounds = messages.rowid_bounds(connection, scope.chat, scope.first_seq, scope.end_seq)
        if session is None or bounds is None:
            return Lists()
        key, bound = session.key, (scope.chat, scope.first_seq, scope.end_seq)

        def nearest(first_seq: int, end_seq: int) -> Sequence[Neighbour]:
            if vector is None:
                return ()
            return vector_search.nearest(connection, vector, key, first_seq, end_seq, depth.vectors)

        steps = Steps(connection, now, now() + seconds)
        with steps.bounded():
            hits = steps.run("words", lambda: _hits(connection, words, key, bounds, scope, depth, steps)) or ()
            near = steps.run("vectors", lambda: nearest(scope.first_seq, scope.end_seq)) or ()
            within = days if vector else ()
            in_days = steps.run("dated", lambda: _dated(connection, nearest, scope, within)[: depth.vectors])
            of_hits = [hit.rowid for hit in hits]
            rowids = [each.rowid for each in (*near, *(in_days or ())) if each.rowid not in known] + of_hits
            found = steps.run("places", lambda: places_of(_PLACES, connection, bound, of_hits, rowids))
        if found is None:
            found = places_of(_PLACES, connection, bound, (), rowids)
        return steps.lists(neighbours=near, hits=hits, dated=in_days or (), places=found)


def latest_day(connection: apsw.Connection, scope: ChatScope) -> tuple[date | None, tzinfo | None]:
    """When something was last said in a scope (None when nothing was), and the zone of its user's days."""
    last, zone = messages.before(connection, scope.chat, scope.end_seq, 1), days_zone(connection, user_of(scope.chat))
    return local_day(from_iso(last[0].created_at), zone) if last and last[0].seq >= scope.first_seq else None, zone


def read_messages(connection: apsw.Connection, rowids: Sequence[int], scope: ChatScope) -> list[Message]:
    """Messages of a scope by their row ids, in the given order; a row of a damaged index must never get out."""
    found = messages.by_rowids(connection, rowids)
    return [m for m in found if m.chat == scope.chat and scope.first_seq <= m.seq < scope.end_seq]


def read_with_unwanted(
    connection: apsw.Connection, rowids: Sequence[int], scope: ChatScope
) -> tuple[list[Message], frozenset[int]]:
    """The same, and the numbers of the messages that the user never wants to be recalled."""
    return read_messages(connection, rowids, scope), chats.unrecalled(connection, scope.chat)


def _hits(
    connection: apsw.Connection,
    words: Sequence[str],
    chat_key: int,
    bounds: tuple[int, int],
    scope: ChatScope,
    depth: Depth,
    steps: Steps,
) -> Sequence[fulltext.TextHit]:
    inside, count = (bounds[0], bounds[1] + 1), scope.end_seq - scope.first_seq
    found = fulltext.scores(connection, words, messages.chat_word(chat_key), inside, count, steps.is_late)
    if not found.complete:
        steps.cut.append("words")
    return found.best(depth.words)


def _dated(
    connection: apsw.Connection,
    nearest: Callable[[int, int], Sequence[Neighbour]],
    scope: ChatScope,
    days: Sequence[tuple[date, date]],
) -> list[Neighbour]:
    """The nearest messages of some days together; the day after each counts, for what is written afterwards."""
    found: dict[int, Neighbour] = {}
    zone = days_zone(connection, user_of(scope.chat)) if days else None
    for first, last in days:
        begin = _first_seq_at(connection, scope, iso(start_of_day(first, zone)))
        end = _first_seq_at(connection, scope, iso(start_of_day(last + timedelta(days=2), zone)))
        for near in nearest(begin, end) if begin < end else ():
            found.setdefault(near.rowid, near)
    return sorted(found.values(), key=lambda near: near.distance)


def _first_seq_at(connection: apsw.Connection, scope: ChatScope, created_at: str) -> int:
    """The first seq of a scope at or after a time, by bisection: time grows with seq, but for a clock put back."""
    low, high = scope.first_seq, scope.end_seq
    while low < high:
        middle = (low + high) // 2
        found = messages.after(connection, scope.chat, middle - 1, 1)
        if not found or found[0].seq >= high or found[0].created_at >= created_at:
            high = middle
        else:
            low = found[0].seq + 1
    return low


_PLACES = place_statements("m.chat_id = ?2 AND m.seq >= ?3 AND m.seq < ?4", "n.seq >= ?3", "n.seq < ?4")
