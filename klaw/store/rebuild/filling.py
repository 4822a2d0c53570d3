"""The new database's vectors: taken over from the old one, and the rest made by the model."""

import time
from collections.abc import Generator

import apsw
import structlog

from klaw.actor.failure import error_class
from klaw.errors import ModelError
from klaw.store.engine import vector_model
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.tables import END
from klaw.store.kinds import messages, topic_vectors
from klaw.store.rebuild.values import Embeds, Progress
from klaw.store.search import knowledge_search, passages, token_codes, vectors

EMBED_ROWS = 32
"""Rows embedded between two commits: what a kill costs."""
_COPY_ROWS = 20

log = structlog.get_logger("klaw.reindex")


def take_over(built: apsw.Connection, live: apsw.Connection, *, slice_s: float) -> Generator[Progress, None, int]:
    """Take over every vector of the live database that is missing and whose message, fact, topic or passage is the same
    in both; the others are made again. Returns how many of messages were stored. A damaged live database gives as many
    as can be read."""
    stored = done = after = total = 0
    try:
        coder = token_codes.coder(live)
        if coder is not None and token_codes.coder(built) is None:
            with built:
                token_codes.prepare(built, coder)
        total = vectors.count_embedded(live)
        more = True
        while more:
            more, begin = False, time.monotonic()
            with built:  # one commit a slice: each writes the pages of many chunks
                while rows := vectors.rowids(live, after, END, _COPY_ROWS):
                    there = set(vectors.rowids(built, after, rows[-1], _COPY_ROWS))
                    stored += _copy_messages(built, live, [row for row in rows if row not in there])
                    after = rows[-1]
                    done += len(rows)
                    if time.monotonic() - begin >= slice_s:
                        more = True
                        break
            yield Progress("vectors", done, total)
        for copy in (_copy_facts, topic_vectors.copy, knowledge_search.copy):
            row: int | None = 0
            while row is not None:
                row = copy(live, built, row, _COPY_ROWS)
                yield Progress("vectors", done, total)
    except DAMAGE as error:
        log.warning("vectors_unreadable", error=error_class(error), count=done)
        yield Progress("vectors", done, total)
    return stored


def _copy_messages(built: apsw.Connection, live: apsw.Connection, rowids: list[int]) -> int:
    taken: dict[int, tuple[bytes, bytes | None]] = {}
    coder = token_codes.coder(live)
    with_codes = coder is not None and coder == token_codes.coder(built)
    for rowid in rowids:
        mine = messages.by_rowids(built, [rowid])
        if mine and mine == messages.by_rowids(live, [rowid]):
            vector = vectors.read(live, rowid)
            if vector is not None:
                taken[rowid] = vector, token_codes.read(live, rowid) if with_codes else None
    stored = 0
    with built:
        stored += _store(built, taken)
    return stored


def _store(built: apsw.Connection, made: dict[int, tuple[bytes, bytes | None]]) -> int:
    codes = {rowid: codes for rowid, (_, codes) in made.items() if codes is not None}
    return vectors.store(built, [(rowid, vector) for rowid, (vector, _) in made.items()], codes=codes)


def _copy_facts(live: apsw.Connection, built: apsw.Connection, after: int, limit: int) -> int | None:
    """Returns up to which row that was; None when there are no more."""
    found = passages.fact_vectors(live, after, limit)
    model = vector_model.current(live)
    if not found or model is None:
        return None
    with built:
        passages.store(built, model[0], found)
    return found[-1].rowid


def embed_rest(built: apsw.Connection, model: Embeds, min_tokens: int) -> Generator[Progress, None, int]:
    """Make the vectors that are missing; each few are committed, so a kill costs little. Returns how many were made. A
    text that the model refuses even alone is left to the server."""
    total, made = vectors.count_unembedded(built, min_tokens), 0
    failing: set[int] = set()
    while True:
        rows = vectors.unembedded(built, min_tokens, EMBED_ROWS + len(failing))
        rows = [row for row in rows if row.rowid not in failing]
        if not rows:
            return made
        try:
            found = model.embed(rows)
        except ModelError:
            found = []
            for row in rows:
                try:
                    found += model.embed([row])
                except ModelError as error:
                    log.warning("embed_failed", rowid=row.rowid, error=error_class(error))
                    failing.add(row.rowid)
            rows = [row for row in rows if row.rowid not in failing]
        with built:
            made += _store(built, {row.rowid: made_of for row, made_of in zip(rows, found, strict=True)})
        yield Progress("embed", made, total)
