"""The second database while it is made from the logs: begun, gone on with after a kill, caught up.

Everything goes through the code that the server uses (migrations, ``messages.restore``, ``turns.insert``), in short
transactions. What an earlier run inserted is not believed but compared with the logs, record by record.
"""

import json
import os
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import apsw
import numpy as np
import structlog

from klaw.actor.failure import error_class
from klaw.convert import JOURNAL
from klaw.store import migrations
from klaw.store.engine import connect, meta, vector_model
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.log_files import files, record_of
from klaw.store.engine.set_aside import SetAside
from klaw.store.engine.tables import END
from klaw.store.kinds import messages, records, runs, topic_vectors
from klaw.store.kinds.inventory import count_messages
from klaw.store.kinds.knowledge import document_copies
from klaw.store.rebuild.files import Places, remove
from klaw.store.rebuild.reconcile import LOG_KINDS, LineInserter, LogKind
from klaw.store.rebuild.values import Phase, Progress, Tally
from klaw.store.search import passages, token_codes, vectors

STATE_KEY = "reindex"
"""In ``meta`` of a database that is being made, and never of one in use."""
_MAX_OPEN = 64
_LOOK_EVERY = 256
"""Lines between two looks at the clock while the logs are looked through."""

log = structlog.get_logger("klaw.reindex")


def grown(positions: Mapping[str, int], now: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Parts of logs that have not been read: from and to, by path."""
    return {path: (positions.get(path, 0), size) for path, size in now.items() if size > positions.get(path, 0)}


def _lines_of(file: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines of a part of a file with their offsets, without line ends; empty ones are left out. A last line without its
    end counts: whether it is torn shows when it is parsed."""
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return  # its chat's folder was removed meanwhile
    with opened:
        opened.seek(start)
        while start < end and (line := opened.readline(end - start)):
            if content := line.rstrip(b"\n"):
                yield start, content
            start += len(line)


class RecordIndex:
    """Where in the logs of one kind each record is, in bounded memory (32 bytes a record), to read them in the order
    of their numbers (chats get their short keys in the order in which they first spoke, as they did when it
    happened), or without a number in the order of the logs. ``skip`` is called with path, line and reason of a line
    without a number."""

    def __init__(self, root: Path, number: str | None, skip: Callable[[str, bytes, str], None]) -> None:
        self._skip = skip
        self._root = root
        self._number = number
        self._begin = f'{{"{number}":'.encode()
        self._paths: list[str] = []
        self._places = array("q")
        """Number, log, offset and length of each record."""

    def __len__(self) -> int:
        return len(self._places) // 4

    def add(self, path: str, start: int, end: int) -> Iterator[int]:
        """Look through a part of a log; yields the offset reached after every line."""
        for offset, line in _lines_of(self._root / path, start, end):
            number = self._number_in(line)
            if number is None:
                self._skip(path, line, "NoNumber")
            else:
                self._places.extend((number, len(self._paths), offset, len(line)))
            yield offset + len(line)
        self._paths.append(path)

    def lines(self) -> Generator[tuple[str, bytes], None, None]:
        """Path and line of every record, in the order of numbers; of equal ones the first that was added first."""
        places = np.frombuffer(self._places, np.int64).reshape(-1, 4)
        opened: OrderedDict[int, int] = OrderedDict()
        try:
            # Python's own sort would keep the interpreter for a second with a million messages.
            for place in np.argsort(places[:, 0], kind="stable"):
                _, log, offset, length = map(int, places[place])
                if log not in opened:
                    opened[log] = os.open(self._root / self._paths[log], os.O_RDONLY | os.O_CLOEXEC)
                    if len(opened) > _MAX_OPEN:
                        os.close(opened.popitem(last=False)[1])
                opened.move_to_end(log)
                yield self._paths[log], os.pread(opened[log], length, offset)
        finally:
            for descriptor in opened.values():
                os.close(descriptor)

    def _number_in(self, line: bytes) -> int | None:
        if self._number is None:
            return 0
        if line.startswith(self._begin):
            digits = line[len(self._begin) : line.find(b",")]
            if digits.isdigit() and len(digits) < 19:
                return int(digits)
        record = record_of(line) or {}
        try:
            return JOURNAL.read(record.get(self._number), int)
        except (TypeError, ValueError):
            return None


class StaleBuild(Exception):
    """What an interrupted reindex left does not match the logs any more."""


class Building:
    """The database that is being made. One thread at a time; close it in the end. After ``slice_s`` at work, a
    generator yields."""

    def __init__(self, places: Places, *, slice_s: float) -> None:
        self._lines = LineInserter(places.database.parent)
        self.positions: dict[str, int] = {}
        """How far each log was read."""
        self._places = places
        self._root = places.database.parent
        self._slice_s = slice_s
        self._state = ""
        self._connection: apsw.Connection | None = None

    @property
    def connection(self) -> apsw.Connection:
        assert self._connection is not None
        return self._connection

    @property
    def tally(self) -> Tally:
        return self._lines.tally

    @property
    def aside(self) -> SetAside:
        """The lines that cannot be stored."""
        return self._lines.aside

    def open(self, *, embed_again: bool) -> bool:
        """Go on with what is there, if it was begun with the same choice, or begin. Returns whether there was something
        to go on with. Raises apsw.Error, OSError: the file cannot be made."""
        self._state = json.dumps({"schema": migrations.latest(), "embed_again": embed_again})
        with suppress(*DAMAGE):
            if self._places.building.exists():
                self._connect()
                same_schema = migrations.current(self.connection) == migrations.latest()
                if same_schema and meta.get(self.connection, STATE_KEY) == self._state:
                    with self.connection:
                        records.clear(self.connection)  # quickly made, so not worth a comparison
                    log.info("reindex_resumed")
                    return True
        self._begin()
        return False

    def _begin(self) -> None:
        """Throw away what is there and begin again."""
        self.close()
        remove(self._places.building)
        self._connect()
        migrations.migrate(self.connection)
        with self.connection:
            meta.put(self.connection, STATE_KEY, self._state)
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
            self._begin()
            yield from self.read(sizes, whole=True)

    def read(self, sizes: Mapping[str, int], *, whole: bool) -> Generator[Progress, None, None]:
        """Insert what the logs have up to these sizes, beyond which a log may still be changed, and this has not.
        ``whole``: these are all logs, from their beginnings. Raises StaleBuild: it has messages that the logs do not
        have, or not so; apsw.Error, OSError: the database cannot be written or the logs cannot be read."""
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
            for _, line in _lines_of(self._root / path, 0, (self._root / path).stat().st_size):
                self._lines.parsed(path, line, runs.parse_transcript)
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
    with suppress(*DAMAGE), built:
        for key, value in meta.in_no_log(live).items():
            meta.put(built, key, value)
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
