"""The new database's vectors: taken over from the old one, and the rest made by the model."""

import time
from collections.abc import Generator

import apsw
import structlog

from klaw.actor.failure import error_class
from klaw.errors import ModelError
from klaw.store.engine.connect import DAMAGE
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.tables import END
from klaw.store.rebuild.values import Embeds, Progress
from klaw.store.search import vectors

EMBED_ROWS = 32
"""Rows embedded between two commits: what a kill costs."""
_COPY_ROWS = 20

log = structlog.get_logger("klaw.reindex")


def take_over(building: Building, live: apsw.Connection, *, slice_s: float) -> Generator[Progress, None, int]:
    """Take over every vector of the live database that is missing and whose message is the same in both.

    Returns how many were stored. A damaged live database gives as many as can be read.
    """
    stored = done = after = 0
    more = True
    total = 0
    try:
        total = vectors.count_embedded(live)
        while more:
            more, begin = False, time.monotonic()
            with building.connection:  # one commit a slice: each writes the pages of many chunks
                while rows := vectors.rowids(live, after, END, _COPY_ROWS):
                    there = set(vectors.rowids(building.connection, after, rows[-1], _COPY_ROWS))
                    stored += building.copy_vectors(live, [row for row in rows if row not in there])
                    after = rows[-1]
                    done += len(rows)
                    if time.monotonic() - begin >= slice_s:
                        more = True
                        break
            if more:
                yield Progress("vectors", done, total)
        row: int | None = 0
        while row is not None:
            row = building.copy_fact_vectors(live, row, _COPY_ROWS)
            yield Progress("vectors", done, total)
        row = 0
        while row is not None:
            row = building.copy_topic_vectors(live, row, _COPY_ROWS)
            yield Progress("vectors", done, total)
    except DAMAGE as error:
        log.warning("vectors_unreadable", error=error_class(error), count=done)
    yield Progress("vectors", done, total)
    return stored


def embed_rest(building: Building, model: Embeds, min_tokens: int) -> Generator[Progress, None, int]:
    """Make the vectors that are missing; each few are committed, so a kill costs little. Returns how many were made.

    A text that the model refuses even alone is left out, for the server to try again.
    """
    connection = building.connection
    total, made = vectors.count_unembedded(connection, min_tokens), 0
    failing: set[int] = set()
    while True:
        rows = vectors.unembedded(connection, min_tokens, EMBED_ROWS + len(failing))
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
        with connection:
            made += vectors.store(connection, [(row.rowid, vector) for row, vector in zip(rows, found, strict=True)])
        yield Progress("embed", made, total)
