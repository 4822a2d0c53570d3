"""The second database while it is made from the logs: begun, gone on with after a kill, caught up.

Everything goes through the code that the server uses (migrations, ``messages.restore``, ``turns.insert``), in short
transactions. What an earlier run inserted is not believed but compared with the logs, record by record.
"""

import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress

import apsw
import structlog

from klaw.actor.failure import error_class
from klaw.store import migrations
from klaw.store.engine import connect, meta, vector_model
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.log_files import files
from klaw.store.engine.set_aside import SetAside
from klaw.store.engine.tables import END
from klaw.store.kinds import messages, records, runs, topic_vectors
from klaw.store.kinds.inventory import count_messages
from klaw.store.kinds.knowledge import document_copies
from klaw.store.rebuild.files import Places, remove
from klaw.store.rebuild.line_inserter import LOG_KINDS, LineInserter, LogKind
from klaw.store.rebuild.logs import RecordIndex, grown, lines
from klaw.store.rebuild.values import Phase, Progress, Tally
from klaw.store.search import passages, token_codes, vectors

STATE_KEY = "reindex"
"""In ``meta`` of a database that is being made, and never of one in use."""
_LOOK_EVERY = 256
"""Lines between two looks at the clock while the logs are looked through."""

log = structlog.get_logger("klaw.reindex")


class StaleBuild(Exception):
    """What an interrupted reindex left does not match the logs any more."""


class Building:
    """The database that is being made. One thread at a time; close it in the end.

    Args:
        slice_s: after so long at work, a generator yields.
    """

    def __init__(self, places: Places, *, slice_s: float) -> None:
        self._lines = LineInserter(places.database.parent)
        self.positions: dict[str, int] = {}
        """How far each log was read."""
        self._places = places
        self._root = places.database.parent
        self._slice_s = slice_s
        self._connection: apsw.Connection | None = None

    @property
    def connection(self) -> apsw.Connection:
        assert self._connection is not None
        return self._connection

    @property
    def tally(self) -> Tally:
        """What the logs held."""
        return self._lines.tally

    @property
    def aside(self) -> SetAside:
        """The lines that cannot be stored."""
        return self._lines.aside

    def open(self, *, embed_again: bool) -> bool:
        """Go on with what is there, if it was begun with the same choice, or begin. Returns whether there was something
        to go on with. Raises apsw.Error, OSError: the file cannot be made."""
        state = json.dumps({"schema": migrations.latest(), "embed_again": embed_again})
        with suppress(*DAMAGE):
            if self._places.building.exists() and self._resume(state):
                return True
        self.begin(embed_again=embed_again)
        return False

    def _resume(self, state: str) -> bool:
        self._connect()
        if migrations.current(self.connection) == migrations.latest() and meta.get(self.connection, STATE_KEY) == state:
            # Few bytes each and quickly made, so not worth a comparison.
            with self.connection:
                records.clear(self.connection)
            log.info("reindex_resumed")
            return True
        return False

    def begin(self, *, embed_again: bool) -> None:
        """Throw away what is there and begin again. Raises like ``open``."""
        self.close()
        remove(self._places.building)
        self._connect()
        migrations.migrate(self.connection)
        state = json.dumps({"schema": migrations.latest(), "embed_again": embed_again})
        with self.connection:
            meta.put(self.connection, STATE_KEY, state)
        self._lines, self.positions = LineInserter(self._root), {}

    def reopen(self, positions: Mapping[str, int]) -> None:
        """Open what another connection has built, and read the logs from there on."""
        self._connect()
        self.positions = dict(positions)

    def _connect(self) -> None:
        connect.private(self._places.building)
        self._connection = apsw.Connection(str(self._places.building))
        connect.prepare_writer(self._connection)

    def finish(self) -> None:
        """Turn it into a database for use, and close it: all is in the one file. Raises apsw.Error."""
        with self.connection:
            meta.remove(self.connection, STATE_KEY)
        self.settle()
        self.close()

    def settle(self) -> None:
        self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read_all(self, sizes: Mapping[str, int], *, embed_again: bool) -> Generator[Progress, None, None]:
        """Open it and insert all that the logs have up to these sizes; what an earlier run left and the logs do not
        bear out is thrown away. Raises like ``open`` and ``read``."""
        resumed = self.open(embed_again=embed_again)
        try:
            yield from self.read(sizes, whole=True)
        except (StaleBuild, *DAMAGE):
            if not resumed:
                raise
            log.warning("reindex_begun_anew")
            self.begin(embed_again=embed_again)
            yield from self.read(sizes, whole=True)

    def read(self, sizes: Mapping[str, int], *, whole: bool) -> Generator[Progress, None, None]:
        """Insert what the logs have up to these sizes and this has not.

        Args:
            sizes: size of each log by its path; beyond it, a log may still be changed.
            whole: these are all logs, from their beginnings.

        Raises:
            StaleBuild: it has messages that the logs do not have, or not so.
            apsw.Error, OSError: the database cannot be written or the logs cannot be read.
        """
        parts = grown(self.positions, sizes)
        for kind in LOG_KINDS:
            of_kind = {path: part for path, part in parts.items() if kind.has(path)}
            accepted = (yield from self._read(kind, of_kind)) if of_kind else 0
            if whole and kind.messages and count_messages(self.connection) != accepted:
                raise StaleBuild
        self.positions.update({path: part[1] for path, part in parts.items()})

    def check_transcripts(self) -> Iterator[Progress]:
        """Keep aside what is no line of a run's transcript: no database has those, but their readers skip it too."""
        paths = [path for path, _ in files(self._root) if runs.is_transcript(path)]
        for done, path in enumerate(sorted(paths)):
            for _, line in lines(self._root / path, 0, (self._root / path).stat().st_size):
                self._lines.transcript(path, line)
            yield Progress("transcripts", done + 1, len(paths))

    def _read(self, kind: LogKind, parts: Mapping[str, tuple[int, int]]) -> Generator[Progress, None, int]:
        """Insert the records of a kind in the order of their numbers. Returns how many numbers have a record."""
        index = RecordIndex(self._root, kind.number, self._lines.skip)
        yield from self._scan(index, parts, "scan" if kind.number else kind.phase)
        done = accepted = last = 0
        more = True
        with closing(index.lines()) as work:
            while more:
                more, begin = False, time.monotonic()
                with self.connection:
                    for path, line in work:
                        number = self._lines.insert(kind, self.connection, path, line)
                        accepted += number not in (None, last)
                        last = number or last
                        done += 1
                        if time.monotonic() - begin >= self._slice_s:
                            more = True
                            break
                yield Progress(kind.phase, done, len(index))
        return accepted

    def _scan(self, index: RecordIndex, parts: Mapping[str, tuple[int, int]], phase: Phase) -> Iterator[Progress]:
        total = sum(end - start for start, end in parts.values())
        done, seen, begin = 0, 0, time.monotonic()
        for path, (start, end) in sorted(parts.items()):
            for reached in index.add(path, start, end):
                seen += 1
                if seen % _LOOK_EVERY == 0 and time.monotonic() - begin >= self._slice_s:
                    yield Progress(phase, done + reached - start, total)
                    begin = time.monotonic()
            done += end - start
        yield Progress(phase, total, total)


# -- what is in no log: documents and vectors, taken over from the old database ---------------------------------------

_COPY_ROWS = 20


def take_over(
    built: apsw.Connection, live: apsw.Connection, *, embed_again: bool, slice_s: float
) -> Generator[Progress, None, int]:
    """Take over documents of knowledge bases, and unless all are to be ``embed_again`` every vector whose message,
    fact, topic or passage is the same in both; the others the server makes again. Can be repeated. Returns how many
    vectors of messages were stored. A damaged live database gives as much as can be read."""
    for step in document_copies.take_over(built, live, slice_s=slice_s):
        yield Progress("documents", *step)
    stored = done = after = total = 0
    try:
        model = vector_model.current(live)
        if model is None:
            return 0
        with built:
            vectors.prepare_at_once(built, *model)
        if embed_again:
            return 0
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
        for copy in (_copy_facts, topic_vectors.copy, passages.copy_documents):
            row: int | None = 0
            while row is not None:
                row = copy(live, built, row, _COPY_ROWS)
                yield Progress("vectors", done, total)
    except DAMAGE as error:
        log.warning("vectors_unreadable", error=error_class(error), count=done)
        yield Progress("vectors", done, total)
    return stored


def _copy_messages(built: apsw.Connection, live: apsw.Connection, rowids: list[int]) -> int:
    taken: dict[int, bytes] = {}
    codes: dict[int, bytes] = {}
    coder = token_codes.coder(live)
    with_codes = coder is not None and coder == token_codes.coder(built)
    for rowid in rowids:
        mine = messages.by_rowids(built, [rowid])
        if mine and mine == messages.by_rowids(live, [rowid]):
            vector = vectors.read(live, rowid)
            if vector is not None:
                taken[rowid] = vector
                code = token_codes.read(live, rowid) if with_codes else None
                if code is not None:
                    codes[rowid] = code
    return vectors.put(built, list(taken.items()), codes=codes)


def _copy_facts(live: apsw.Connection, built: apsw.Connection, after: int, limit: int) -> int | None:
    """Returns up to which row that was; None when there are no more."""
    found = passages.fact_vectors(live, after, limit)
    model = vector_model.current(live)
    if not found or model is None:
        return None
    with built:
        passages.store(built, model[0], found)
    return found[-1].rowid
