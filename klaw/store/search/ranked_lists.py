"""The ranked lists that a search brings up, and what ranking wants to know of messages.

A search has a part by words and a part by vector, which may run one after the other; ``Lists.joined`` makes one result
of both. Each part is a step: a damaged index, or a step for which there was no time, costs that list only.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.domain.message import Role
from klaw.domain.names import ChatId
from klaw.store.kinds.messages import MESSAGE
from klaw.store.search.fulltext import TextHit
from klaw.store.search.vector_search import Neighbour

T = TypeVar("T")

HEAD_CHARACTERS = 64
_PROGRESS_STEPS = 2_000
"""Steps of SQLite's machine between two looks at the clock: some 50 us."""

DAMAGE = (apsw.SQLError, apsw.CorruptError)
"""What SQLite and its extensions say of a damaged index; not what an interrupted or busy search says."""

log = structlog.get_logger("klaw.recall")


@attrs.frozen
class MessagePlace:
    """What ranking wants to know of a message: where it stands and what it is, without its text."""

    rowid: int
    chat: ChatId
    seq: int
    role: Role
    created_at: str
    tokens: int
    head: str
    """The first characters of its text."""
    traits: int
    """``store.engine.traits``, as ``before`` has them of the searchable message before it in the scope."""
    before: int
    previous: int | None
    """Row id of that message; ``next``: of the one after it, if its score spreads."""
    next: int | None


@attrs.frozen(kw_only=True)
class Lists:
    """The ranked lists of a query, each the best first."""

    neighbours: Sequence[Neighbour] = ()
    """Found by vector."""
    hits: Sequence[TextHit] = ()
    """Found by words."""
    dated: Sequence[Neighbour] = ()
    """By vector, among what was said in the days that the query names."""
    places: Sequence[MessagePlace] = ()
    """The places of the messages in the lists and beside the hits; empty for passages."""
    weights: Mapping[str, float] = attrs.Factory(dict)
    """How much each of the query's words, as written, counts: the rarer in the scope, the more. For passages only."""
    cut: Sequence[str] = ()
    """Steps that were left out because the time was up: ``words``, ``vectors``, ``places``, ``dated``."""
    vectors_failed: bool = False
    """The vector index is damaged; the list by words is complete."""
    text_failed: bool = False
    """The full-text index is damaged; the lists by vector are complete."""
    vectors_complete: bool = True
    """Whether all vectors were searched: not while many still wait for their codes after an update."""
    words_left_out: Sequence[str] = ()
    """Words so frequent that they were not searched for beside rarer ones."""
    newest_only: bool = False
    """All words are so frequent that full text ranked only newer messages."""
    timings_ms: Mapping[str, float] = attrs.Factory(dict)

    def joined(self, near: "Lists") -> "Lists":
        """This search by words with a search of the same scope by vector."""
        places = {place.rowid: place for place in (*near.places, *self.places)}  # these know their neighbours
        cut = [step for step in self.cut if step in ("words", "places")]
        return attrs.evolve(
            self,
            neighbours=near.neighbours,
            dated=near.dated,
            places=list(places.values()),
            cut=cut + [step for step in near.cut if step != "words" and step not in cut],
            vectors_failed=near.vectors_failed,
            vectors_complete=near.vectors_complete,
            timings_ms={
                **{step: spent for step, spent in near.timings_ms.items() if step in ("vectors", "dated")},
                **{step: spent for step, spent in self.timings_ms.items() if step in ("words", "places")},
            },
        )


@attrs.define
class Steps:
    """Runs the steps of a search until the time is up."""

    connection: apsw.Connection
    now: Callable[[], float] = time.monotonic
    deadline: float = math.inf
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
                event = "text_search_failed" if name == "words" else "vector_search_failed"
                log.warning(event, error=error_class(error))
                self.failed.add(name)
                return None
            finally:
                self.timings_ms[name] = (self.now() - begin) * 1000
        self.cut.append(name)
        return None

    def lists(self, **found: Any) -> Lists:
        return Lists(
            **found,
            cut=tuple(self.cut),
            vectors_failed=not self.failed.isdisjoint(("vectors", "dated")),
            text_failed="words" in self.failed,
            timings_ms=self.timings_ms,
        )


def place_statements(condition: str, before: str, after: str) -> tuple[str, str]:
    """Statements that give the places of rows (their ids as JSON are ``?1``), with the message behind and without: of
    rows ``m`` that meet a condition; the nearest ones ``n`` of the same chat before and after them must meet theirs.
    Only what is searched has traits; finding that out from them reads no other row of the messages."""
    beside = f"""(
    SELECT n.rowid FROM {MESSAGE.table} AS n CROSS JOIN message_traits AS s ON s.rowid = n.rowid
    WHERE n.chat_id = m.chat_id AND n.seq {{}} m.seq AND {{}} ORDER BY n.seq {{}} LIMIT 1)"""  # noqa: S608 - constants
    text = f"substr(m.content, 1, {HEAD_CHARACTERS})"
    place = f"m.rowid, m.chat_id, m.seq, m.role, m.created_at, m.tokens, {text}"
    traits = "coalesce(t.traits, 0), coalesce(p.traits, 0), p.rowid"
    of_rows = f"""
    FROM json_each(?1) AS r CROSS JOIN {MESSAGE.table} AS m ON m.rowid = r.value
    LEFT JOIN message_traits AS t ON t.rowid = m.rowid
    LEFT JOIN message_traits AS p ON p.rowid = {beside.format("<", before, "DESC")}
    WHERE {condition}"""
    behind = beside.format(">", after, "ASC")
    return f"SELECT {place}, {traits}, {behind} {of_rows}", f"SELECT {place}, {traits}, NULL {of_rows}"


def places_of(
    statements: tuple[str, str],
    connection: apsw.Connection,
    bindings: Sequence[Any],
    spreading: Sequence[int],
    others: Iterable[int],
) -> list[MessagePlace]:
    """Places of rows, and of the neighbours of those whose score spreads; ``bindings`` are those from ``?2`` on."""

    def read(sql: str, rowids: Iterable[int]) -> dict[int, MessagePlace]:
        rows = connection.execute(sql, (json.dumps(list(dict.fromkeys(rowids))), *bindings))
        return {row[0]: _place(row) for row in rows}

    found = read(statements[0], spreading)
    beside = {rowid for place in found.values() for rowid in (place.previous, place.next) if rowid is not None}
    return [*found.values(), *read(statements[1], sorted(beside.union(others) - found.keys())).values()]


_ROLES = {role.value: role for role in Role}
"""Looking a role up is quicker than making it, for hundreds of rows."""


def _place(row: Sequence[Any]) -> MessagePlace:
    rowid, chat, seq, role, *others = row
    return MessagePlace(rowid, chat, seq, _ROLES[role], *others)
