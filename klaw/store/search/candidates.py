"""SQL of recall: the ranked lists of one query in one scope, and what ranking wants to know of the rows in them.

The scope is a condition inside each search: a filter after it would return nothing as soon as messages outside are
nearer. All lists of a query come from one snapshot.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any, TypeVar

import apsw
import attrs
import structlog

from klaw.actor.clock import from_iso, iso
from klaw.actor.failure import error_class
from klaw.domain.days import local_day, start_of_day
from klaw.domain.message import Message, Role
from klaw.domain.names import ChatId
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import chats, messages
from klaw.store.search import fulltext, vector_search
from klaw.store.search.vector_search import Neighbour

T = TypeVar("T")

HEAD_CHARACTERS = 64
_PROGRESS_STEPS = 2_000
"""Steps of SQLite's machine between two looks at the clock: some 50 us."""

DAMAGE = (apsw.SQLError, apsw.CorruptError)
"""What SQLite and its extensions say of a damaged index; not what an interrupted or busy search says."""

log = structlog.get_logger("klaw.recall")


@attrs.frozen(kw_only=True)
class Scope:
    """Where recall may look: one chat, from a segment's first message to the window's."""

    chat: ChatId
    first_seq: int
    end_seq: int
    """The first seq that is not searched: the window's first message."""


@attrs.frozen(kw_only=True)
class Depth:
    """Most results of each list."""

    vectors: int
    words: int
    spreading: int
    """How many of the best by words share their scores with their neighbours."""


@attrs.frozen
class Place:
    """What ranking wants to know of a row: where it stands and what it is, without its text."""

    rowid: int
    chat: ChatId
    seq: int
    role: Role
    created_at: str
    tokens: int
    head: str
    """The first characters of its text."""
    previous: int | None
    """Row id of the searchable message before it in the scope."""
    next: int | None
    """… and after it."""


@attrs.frozen(kw_only=True)
class Lists:
    """The ranked lists of a query, each the best first, and the places of the rows in them and beside them."""

    neighbours: Sequence[Neighbour] = ()
    """By vector, in the whole scope."""
    hits: Sequence[fulltext.TextHit] = ()
    """By words, in the whole scope."""
    dated: Sequence[Neighbour] = ()
    """By vector, among what was said in the days that the query names."""
    places: Sequence[Place] = ()
    cut: Sequence[str] = ()
    """Steps that were left out because the time was up: ``words``, ``vectors``, ``places``, ``dated``."""
    vectors_failed: bool = False
    """The vector index is damaged; the list by words is complete."""
    text_failed: bool = False
    """The full-text index is damaged; the lists by vector are complete."""
    latest: date | None = None
    """The day of the scope's last message; None where it is empty."""
    timings_ms: Mapping[str, float] = attrs.Factory(dict)
    """By step."""


def join(by_words: Lists, by_vector: Lists) -> Lists:
    """One result of two searches of one scope, one without a vector and one without words."""
    places = {place.rowid: place for place in (*by_vector.places, *by_words.places)}  # these know their neighbours
    cut = [step for step in by_words.cut if step in ("words", "places")]
    cut += [step for step in by_vector.cut if step != "words" and step not in cut]
    return Lists(
        neighbours=by_vector.neighbours,
        hits=by_words.hits,
        dated=by_vector.dated,
        places=list(places.values()),
        cut=cut,
        vectors_failed=by_vector.vectors_failed,
        text_failed=by_words.text_failed,
        latest=by_words.latest,
        timings_ms={
            **{step: by_vector.timings_ms[step] for step in ("vectors", "dated") if step in by_vector.timings_ms},
            **{step: by_words.timings_ms[step] for step in ("words", "places") if step in by_words.timings_ms},
        },
    )


def _latest_day(connection: apsw.Connection, scope: Scope) -> date | None:
    query = "SELECT created_at FROM messages WHERE chat_id = ? AND seq >= ? AND seq < ? ORDER BY seq DESC LIMIT 1"
    created_at = connection.execute(query, (scope.chat, scope.first_seq, scope.end_seq)).get
    return local_day(from_iso(created_at)) if created_at is not None else None


_CREATED_BEFORE = "SELECT created_at FROM messages WHERE chat_id = ? AND seq >= ? AND seq < ? ORDER BY seq DESC LIMIT 1"


def search_lists(
    connection: apsw.Connection,
    vector: bytes | None,
    words: Sequence[str],
    days: Sequence[tuple[date, date]],
    scope: Scope,
    depth: Depth,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
    known: Collection[int] = (),
) -> Lists:
    """Search a scope by vector (if there is one), by words, and by vector within some days.

    Args:
        vector: the query's vector, little-endian float32.
        words: the query's content words.
        days: first and last days that the query names.
        scope: where to look.
        depth: most results of each list.
        seconds: time for all of it; steps that would begin later or take longer are left out and named in ``cut``.
        now: what they are measured by, in seconds.
        known: row ids whose places are known from a search of the same scope, and are not looked up again.
    """
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
            hits = steps.run("words", lambda: _hits(connection, words, key, bounds, scope, depth, steps))
            near = steps.run("vectors", lambda: nearest(scope.first_seq, scope.end_seq))
            dated = steps.run(
                "dated", lambda: _dated(connection, nearest, scope, days if vector else ())[: depth.vectors]
            )
            rowids = [each.rowid for each in (*(near or ()), *(dated or ())) if each.rowid not in known]
            rowids += [hit.rowid for hit in hits or ()]
            near_hits = [hit.rowid for hit in hits or ()]
            found = steps.run("places", lambda: places_of(_PLACES, connection, bound, near_hits, rowids))
        return Lists(
            neighbours=near or (),
            hits=hits or (),
            dated=dated or (),
            places=found if found is not None else places_of(_PLACES, connection, bound, (), rowids),
            cut=tuple(steps.cut),
            vectors_failed=not steps.failed.isdisjoint(("vectors", "dated")),
            text_failed="words" in steps.failed,
            latest=_latest_day(connection, scope),
            timings_ms=steps.timings_ms,
        )


def read_messages(connection: apsw.Connection, rowids: Sequence[int], scope: Scope) -> list[Message]:
    """Messages of a scope by their row ids, in the given order.

    The lists are in scope by construction; a row of a damaged index must still never get out.
    """
    found = messages.by_rowids(connection, rowids)
    return [m for m in found if m.chat == scope.chat and scope.first_seq <= m.seq < scope.end_seq]


def read_with_unwanted(
    connection: apsw.Connection, rowids: Sequence[int], scope: Scope
) -> tuple[list[Message], frozenset[int]]:
    """See ``read_messages``; with the numbers of those that the user never wants to be recalled."""
    return read_messages(connection, rowids, scope), chats.unrecalled(connection, scope.chat)


@attrs.define
class Steps:
    """Runs the steps of a search until the time is up."""

    connection: apsw.Connection
    now: Callable[[], float]
    deadline: float
    cut: list[str] = attrs.Factory(list)
    failed: set[str] = attrs.Factory(set)
    timings_ms: dict[str, float] = attrs.Factory(dict)

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Within, a statement that runs past the deadline is interrupted."""
        self.connection.set_progress_handler(self.is_late, _PROGRESS_STEPS)
        try:
            yield
        finally:
            self.connection.set_progress_handler(None)

    def is_late(self) -> bool:
        return self.now() > self.deadline

    def run(self, name: str, step: Callable[[], T]) -> T | None:
        """The step's result; None when there was no time for it or its index is damaged."""
        begin = self.now()
        if begin <= self.deadline:
            try:
                return step()
            except apsw.InterruptError:
                if not self.is_late():
                    raise  # cancelled from outside
            except DAMAGE as error:
                if name == "places":
                    raise
                log.warning(
                    "text_search_failed" if name == "words" else "vector_search_failed", error=error_class(error)
                )
                self.failed.add(name)
                return None
            finally:
                self.timings_ms[name] = (self.now() - begin) * 1000
        self.cut.append(name)
        return None


def _hits(
    connection: apsw.Connection,
    words: Sequence[str],
    chat_key: int,
    bounds: tuple[int, int],
    scope: Scope,
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
    scope: Scope,
    days: Sequence[tuple[date, date]],
) -> list[Neighbour]:
    """The nearest messages of some days, over all of them; the day after each counts, for what is told afterwards."""
    found: dict[int, Neighbour] = {}
    for first, last in days:
        begin = _first_seq_at(connection, scope, iso(start_of_day(first)))
        end = _first_seq_at(connection, scope, iso(start_of_day(last + timedelta(days=2))))
        for near in nearest(begin, end) if begin < end else ():
            found.setdefault(near.rowid, near)
    return sorted(found.values(), key=lambda near: near.distance)


_CREATED_FROM = "SELECT seq, created_at FROM messages WHERE chat_id = ? AND seq >= ? AND seq < ? ORDER BY seq LIMIT 1"


def _first_seq_at(connection: apsw.Connection, scope: Scope, created_at: str) -> int:
    """The first seq of a scope at or after a time, by bisection: time grows with seq, but for a clock put back."""
    low, high = scope.first_seq, scope.end_seq
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(_CREATED_FROM, (scope.chat, middle, high)).fetchone()
        if row is None or row[1] >= created_at:
            high = middle
        else:
            low = row[0] + 1
    return low


def place_statements(condition: str, before: str, after: str) -> tuple[str, str]:
    """Statements that give the places of rows (their ids as JSON are ``?1``), with neighbours and without.

    Args:
        condition: that rows ``m`` must meet.
        before, after: what the message ``n`` of the same chat that is the nearest one before, or after, must meet.
    """
    beside = """(
    SELECT n.rowid FROM messages AS n WHERE n.chat_id = m.chat_id AND n.seq {} m.seq AND {}
        AND n.role IN ('user', 'assistant') AND n.type IN ('text', 'scheduled')
    ORDER BY n.seq {} LIMIT 1)"""
    text = f"substr(m.content, 1, {HEAD_CHARACTERS})"
    place = f"m.rowid, m.chat_id, m.seq, m.role, m.created_at, m.tokens, {text}"
    of_rows = f"FROM json_each(?1) AS r CROSS JOIN messages AS m ON m.rowid = r.value WHERE {condition}"
    neighbours = f"{beside.format('<', before, 'DESC')}, {beside.format('>', after, 'ASC')}"
    return f"SELECT {place}, {neighbours} {of_rows}", f"SELECT {place}, NULL, NULL {of_rows}"


def places_of(
    statements: tuple[str, str],
    connection: apsw.Connection,
    bindings: Sequence[Any],
    spreading: Sequence[int],
    others: Iterable[int],
) -> list[Place]:
    """Places of rows, and of the neighbours of those whose score spreads to them.

    Args:
        statements: of ``place_statements``.
        bindings: of the statements, from ``?2`` on.
        spreading: row ids that are told with their neighbours.
        others: row ids that are told without.
    """

    def read(sql: str, rowids: Iterable[int]) -> dict[int, Place]:
        rows = connection.execute(sql, (json.dumps(list(dict.fromkeys(rowids))), *bindings))
        return {row[0]: _place(row) for row in rows}

    found = read(statements[0], spreading)
    beside = {rowid for place in found.values() for rowid in (place.previous, place.next) if rowid is not None}
    return [*found.values(), *read(statements[1], sorted(beside.union(others) - found.keys())).values()]


_PLACES = place_statements("m.chat_id = ?2 AND m.seq >= ?3 AND m.seq < ?4", "n.seq >= ?3", "n.seq < ?4")


_ROLES = {role.value: role for role in Role}
"""Looking a role up is quicker than making it, for hundreds of rows."""


def _place(row: Sequence[Any]) -> Place:
    """A place from a row of its columns in their order."""
    rowid, chat, seq, role, created_at, tokens, head, previous, following = row
    return Place(rowid, chat, seq, _ROLES[role], created_at, tokens, head, previous, following)
