"""Forgetting in the logs: what their lines become, the logs without what was forgotten, and what a kill interrupted.

The logs are cleaned in two rounds, so that a kill at any point leaves what the next start needs: first what quotes the
forgotten texts, also copies of summaries, then the texts' own lines. All functions block; those that take a
``StoppedStore`` or a journal run in the writer's thread. What cannot be cleaned raises StorageError; the next start
cleans it.
"""

import heapq
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import structlog

from klaw.actor.failure import error_class, where
from klaw.config.paths import encode_name
from klaw.domain.attachment import FILES
from klaw.domain.context_used import KEY
from klaw.domain.forget import FORGOTTEN, MARK, PieceFinder, most_pieces
from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import StorageError
from klaw.store import changes, rows
from klaw.store.engine import connect, meta
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_files import FAULTS, parse
from klaw.store.engine.log_rewrite import DRAFT, STEP_BYTES, LogRewrite
from klaw.store.engine.transaction import StoppedStore, WriteRequest, commit_group
from klaw.store.forget import execute, quotes
from klaw.store.forget.execute import ForgetEntry, merged, together
from klaw.store.forget.quotes import QuotesFound, is_said_again
from klaw.store.kinds import attachments, forgotten, messages, records, runs, summaries, turns
from klaw.store.kinds.core_memory import CORE
from klaw.store.kinds.knowledge.bases import BASE
from klaw.store.kinds.knowledge.sources import SOURCE
from klaw.store.kinds.messages import MESSAGE
from klaw.store.kinds.people import MENTION, PERSON
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.summaries import COPIES, SUMMARY, copy_path
from klaw.store.kinds.tasks import TASK
from klaw.store.kinds.topic_changes import TOPIC

LOGS = (messages.CONVERSATIONS, turns.TURNS, runs.RUNS, changes.MEMORY)
"""In the order in which they are cleaned: that of memory knows a person's names, for which the others are cleaned."""
MOST_BUSY_MS = 100
"""How long emptying the write-ahead log waits for readers. Everybody who writes waits as long; what is not emptied is
tried again."""

T = TypeVar("T")

_MESSAGE = re.compile(rb'\{"rowid":(\d{1,19}),')

log = structlog.get_logger("klaw.forget")


def is_log(name: str) -> bool:
    """Whether a file of the data folder is a log of records."""
    return name.endswith(".jsonl") and name.split("/", 1)[0] in LOGS


def needles(pieces: Sequence[str]) -> list[bytes]:
    """The bytes to look for: as text and as JSON has it. A long piece also by its beginning and its middle, because a
    database spreads it over pages."""
    inner = [part for piece in pieces if len(piece) > 120 for part in (piece[:40], piece[len(piece) // 2 :][:40])]
    parts = [*pieces, *inner]
    found = {part.encode() for part in parts} | {rows.dumps(part)[1:-1].encode() for part in parts}
    return sorted(found)


class Cleaner:
    """What the lines of logs become. Made by a connection after the forgetting was carried out; ``finder`` finds the
    texts that are taken out wherever the user's records quote them."""

    own = False
    """Whether the texts' own lines go too: the second round."""

    def __init__(self, connection: apsw.Connection, entry: ForgetEntry, finder: PieceFinder) -> None:
        user = entry.user
        self.entry, self._finder = entry, finder
        self._messages = frozenset(entry.messages)
        self._first = quotes.first_quote(connection, entry.asked)
        self._gone = {**entry.gone, BASE.what: entry.knowledge, SOURCE.what: entry.knowledge}
        self._summaries = {summaries.summary_key(each) for each in entry.summaries}
        self._keep = {kind.what for kind in KINDS if kind.on_purpose}
        # What lines are to say, as the database does.
        self._past = forgotten.past_values(connection, user, entry.past)
        for kind in (kind for kind in KINDS if kind.forgets_past):
            query = f"SELECT entry, value FROM {kind.past} WHERE user_id = ? AND value IS NOT NULL"  # noqa: S608
            self._past |= {number: json.loads(value) for number, value in connection.execute(query, (user,))}
        self._receipts = turns.receipts(connection, user, (*entry.turns, *entry.used))
        self._runs = forgotten.run_texts(connection, user, (*entry.runs, *entry.ran))
        # Nobody can see or restore the earlier texts of a kind without history: they go with any forgetting.
        own = (each for each in KINDS if each.ops and each.quotes and each.made_of is None)
        self._no_history = {each.what: each for each in own if not each.past or each.forgets_past}
        self._now = {
            (kind.what, kind.key_of(key)): {
                column: json.loads(value) if column in kind.documents else value
                for column, value in zip(kind.quotes, values, strict=True)
            }
            for kind in self._no_history.values()
            for key, *values in connection.execute(
                f"SELECT {kind.id}, {', '.join(kind.quotes)} FROM {kind.table} WHERE user_id = ?",  # noqa: S608
                (user,),
            )
        }

    def line_of(self, path: str) -> Callable[[bytes], bytes]:
        """For ``Journal.rewrite``. What the lines of other users say makes no difference, not even to the time."""
        mine = f'"user_id":{rows.dumps(self.entry.user)}'.encode()
        kind = path.split("/", 1)[0]
        marks = self._marks(kind) if self.own else []

        def may_change(line: bytes) -> bool:
            """Tells by its bytes, so that not every line has to be parsed."""
            if mine not in line:
                return False
            message = _MESSAGE.match(line) if kind == messages.CONVERSATIONS else None
            if message and int(message[1]) in self._messages:
                return self.own
            return any(each in line for each in marks) or self._finder.may_stand_in(line.decode(errors="replace"))

        def cleaned(line: bytes) -> bytes:
            if not may_change(line):
                return line
            try:
                record = parse(line)
                if record.get("user_id") != self.entry.user:
                    return line
                new = self._clean(kind, record)
                return line if new == record else rows.dumps(new).encode()
            except FAULTS:
                # A torn or odd line: no reader takes it, and it must not hold the text.
                return b"" if any(each in line for each in needles(self._finder.pieces)) else line

        return cleaned

    def _marks(self, kind: str) -> list[bytes]:
        """What stands in lines that may be the own ones."""
        if kind == messages.CONVERSATIONS:
            turns_ = () if self.entry.knowledge else self.entry.used
            return [
                *(f'"run":{rows.dumps(run)}'.encode() for run in self.entry.ran),
                *(f'"turn":{rows.dumps(turn)}'.encode() for turn in turns_),
            ]
        if kind == turns.TURNS:
            return [f'"turn_id":{rows.dumps(turn)},'.encode() for turn in self._receipts]
        if kind == runs.RUNS:
            return [f'"id":{rows.dumps(run)},'.encode() for run in self._runs]
        return [f'"what":"{each.what}"'.encode() for each in KINDS if each.ops and each.quotes]

    def _clean(self, kind: str, record: dict[str, Any]) -> dict[str, Any]:
        if kind == messages.CONVERSATIONS:
            return self._of_message(record)
        if kind == turns.TURNS:
            if self.own and record.get("turn_id") in self._receipts:
                return {**record, "receipt": self._receipts[record["turn_id"]]}
            return self._redacted(record, "receipt")
        if kind == runs.RUNS:
            if self.own and record.get("id") in self._runs:
                return runs.without_names(record, self._runs[record["id"]])
            return self._redacted(record, "message", "result", "note", "error", "details")
        return self._of_memory(record)

    def _redacted(self, record: dict[str, Any], *names: str) -> dict[str, Any]:
        return {**record, **{name: self._finder.taken_out(record[name]) for name in names if name in record}}

    def _of_message(self, record: dict[str, Any]) -> dict[str, Any]:
        rowid, run = record.get("rowid"), (record.get("metadata") or {}).get("run")
        in_run = rowid is None and run in self.entry.ran
        if in_run or rowid in self._messages:
            gone = {"role": "system", "type": "command", "content": "", "tokens": 0}
            metadata = {FORGOTTEN: self.entry.time, **({"run": run} if in_run else {})}
            return {**record, **gone, "metadata": metadata} if self.own else record
        if self.own and not self.entry.knowledge and (record.get("metadata") or {}).get("turn") in self.entry.used:
            record = {**record, "metadata": {k: v for k, v in record["metadata"].items() if k != KEY}}
        role, content = record.get("role"), record.get("content")
        said_again = isinstance(role, str) and isinstance(content, str) and is_said_again(role, content, self._finder)
        if rowid is not None and (rowid < self._first or said_again):
            return record
        return self._redacted(record, "content", "metadata")

    def _of_memory(self, record: dict[str, Any]) -> dict[str, Any]:
        what, key, value = str(record.get("what")), record.get("key"), record.get("value")
        number = record.get("entry", 0)
        if not isinstance(value, dict) or what in (execute.FORGET.what, MENTION.what):
            return record
        if self.own and number < self.entry.entry:
            if key in self._gone.get(what, ()):
                return {**{name: each for name, each in record.items() if name != "value"}, "op": "remove"}
            value = self._past.get(number) or self._before(what, key, value)
        # What people keep on purpose goes as a whole, or stays.
        return {**record, "value": value if what in self._keep else self._finder.taken_out(value)}

    def _before(self, what: str, key: object, value: dict[str, Any]) -> dict[str, Any]:
        """A value of before the forgetting, without what went by it."""
        if what == SUMMARY.what and key in self._summaries:
            notes = [{**note, "text": MARK} for note in value.get("notes", [])]
            return {**value, "text": MARK, "notes": notes}
        if what == TOPIC.what and "topics" in value:
            ended = self.entry.topics
            states = [{**each, "summary": MARK} if each.get("id") in ended else each for each in value["topics"]]
            return {**value, "topics": states}
        if what == CORE.what and self.entry.core:  # later lines say what these are now
            return {**value, "document": {}, "replaces": ""}
        if (kind := self._no_history.get(what)) is None:
            return value
        now = self._now.get((what, str(key or "")), {})
        gone = [name for name in kind.quotes if value.get(name) and value[name] != now.get(name)]
        return {**value, **{name: MARK if isinstance(value[name], str) else type(value[name])() for name in gone}}


# -- cleaning ----------------------------------------------------------------------------------------------------------


def logs_with(root: Path, cleaner: Cleaner) -> list[str]:
    """Logs in which the cleaner has something to do; those of other users' conversations are not opened."""
    found = []
    for folder in LOGS:
        for path in sorted((root / folder).rglob("*.jsonl")):
            name = path.relative_to(root).as_posix()
            if _may_hold_lines_of(name, cleaner.entry.user):
                cleaned = cleaner.line_of(name)
                with path.open("rb") as file:
                    if any(cleaned(line) != line for line in (raw.rstrip(b"\n") for raw in file)):
                        found.append(name)
    return found


def _may_hold_lines_of(name: str, user: UserId) -> bool:
    top, _, rest = name.partition("/")
    if top != messages.CONVERSATIONS:
        return True
    if runs.is_transcript(name):
        return rest.partition("/")[0].partition("@")[2] == ("" if user == LOCAL_USER else user)
    return rest.startswith(encode_name(f"{user}:"))


def remove_copies(root: Path, entry: ForgetEntry, finder: PieceFinder) -> None:
    """Remove the Markdown copies of summaries that are gone or quote a piece; what is still there is copied again."""
    for chat, number in entry.summaries:
        (root / copy_path(chat, number)).unlink(missing_ok=True)
    folders = (root / COPIES).iterdir() if finder and (root / COPIES).is_dir() else ()
    mine = encode_name(f"{entry.user}:")
    for folder in (each for each in folders if each.name.startswith(mine) and each.is_dir() and not each.is_symlink()):
        for path in folder.iterdir():
            if path.is_file() and finder.found_in(path.read_text("utf-8", "replace")):
                path.unlink(missing_ok=True)


def compact(connection: apsw.Connection, *, vacuum: bool) -> bool:
    """Bring all that was written into the database file and empty the write-ahead log; ``vacuum`` rebuilds the file, so
    that no page holds what was once there. Returns whether the log was emptied: not while another process, such as a
    backup, reads an older state; then it is still owed."""
    for kind in KINDS:
        # In rows that were replaced before the index was told to leave no words, what was taken out is only marked. The
        # index of messages is large, and only forgetting takes words out of it.
        if kind.full_text and kind is not MESSAGE:
            connection.execute(f"INSERT INTO {kind.table}_fts ({kind.table}_fts) VALUES ('optimize')")  # noqa: S608
    if vacuum:
        connection.execute("VACUUM")
    connection.set_busy_timeout(MOST_BUSY_MS)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        log.warning("log_not_emptied", file="klaw.db-wal")
        return False
    finally:
        connection.set_busy_timeout(connect.BUSY_TIMEOUT_MS)
    if vacuum:
        meta.remove(connection, meta.FORGET_COMPACT)
    return True


# -- beside the running server -----------------------------------------------------------------------------------------


def begin_cleaning(stopped: StoppedStore, cleaner: Cleaner, paths: Sequence[str]) -> list[LogRewrite]:
    with left_to_the_next_start(stopped.journal):
        return [stopped.journal.begin_rewrite(path, cleaner.line_of(path)) for path in paths]


def exchange_logs(stopped: StoppedStore, rewrites: Sequence[LogRewrite]) -> list[LogRewrite]:
    """Put the new logs in the place of the old ones. Returns those to which too much was appended meanwhile: see
    ``Journal.exchange``."""
    with left_to_the_next_start(stopped.journal):
        return stopped.journal.exchange_all(rewrites, most=STEP_BYTES)


def compact_database(stopped: StoppedStore, *, vacuum: bool) -> bool:
    """See ``compact``. To rebuild a file of some hundred megabytes takes a second."""
    with left_to_the_next_start(stopped.journal):
        return compact(stopped.connection, vacuum=vacuum)


@contextmanager
def left_to_the_next_start(journal: Journal | None = None) -> Iterator[None]:
    """What cannot be cleaned now the next start cleans: it is noted in the database and in the memory journal."""
    if journal is not None and journal.is_read:
        raise StorageError("a reindex is reading the logs: what is left is cleaned at the next start")
    try:
        yield
    except (apsw.Error, OSError) as error:
        log.error("clean_failed", error=error_class(error), where=where(error))
        raise StorageError(
            f"the logs could not be cleaned ({error_class(error)}); the next start tries again"
        ) from error


# -- at a start, in its thread -----------------------------------------------------------------------------------------

MOST_AT_START = 500
"""Messages of a forgetting that a start finishes; a larger one is finished beside the running server."""


def interrupted(connection: apsw.Connection, *, large: bool) -> list[list[ForgetEntry]]:
    """The forgettings that a kill interrupted, each with its entries so far: the large ones, or the others."""
    return [each for each in together(execute.pending(connection)) if (len(each[0].asked) > MOST_AT_START) == large]


def finish(connection: apsw.Connection, journal: Journal, root: Path) -> None:
    """Finish what is not large. Raises OSError, apsw.Error, StorageError."""
    for entries in interrupted(connection, large=False):
        _finish(connection, journal, root, entries)


def _finish(connection: apsw.Connection, journal: Journal, root: Path, entries: list[ForgetEntry]) -> None:
    def write(function: Callable[..., T], *args: Any) -> T:
        (outcome,) = commit_group(connection, journal, [WriteRequest(function, args)])
        if outcome.error is not None:
            raise outcome.error
        done: T = outcome.value
        return done

    first = entries[0]
    if rest := forgotten.left(connection, first.user, first.asked):
        entries.append(write(execute.forget_rest, first.user, rest, first.time))
    entry = merged(entries)
    found = look_again(connection, entry)
    write(execute.redact_again, entry, found)
    cleaner = Cleaner(connection, entry, found.finder)
    for own in (False, True):
        cleaner.own = own
        if own:
            remove_copies(root, entry, found.finder)
        journal.checkpoint()
        for path in logs_with(root, cleaner):
            journal.rewrite(path, cleaner.line_of(path))
    for folder in LOGS:
        for draft in (root / folder).rglob(DRAFT.format("*.jsonl")):
            draft.unlink(missing_ok=True)  # what a kill left of rewritten logs may say what was to go
    compact(connection, vacuum=True)
    write(execute.note_forgotten, first.user, [each.entry for each in entries], first.time)
    log.info("forget_finished", count=len(entry.messages) + len(entry.facts))


def look_again(connection: apsw.Connection, entry: ForgetEntry) -> QuotesFound:
    """Look for quotes of what was forgotten, as far as the logs still say it: they do not when only the last round was
    cut off. Of very many texts for the longest."""
    asked, with_files, root = frozenset(entry.asked), [], Path(connection.filename).parent

    def contents() -> Iterator[str]:
        for path in forgotten.log_paths(connection, entry.user, entry.asked):
            for each in _read(root / path, messages.parse_message):
                if each.rowid in asked and FORGOTTEN not in each.metadata:
                    if FILES in each.metadata:
                        with_files.append(each)
                    yield each.content

    texts = heapq.nlargest(most_pieces(len(asked)), contents(), key=len)
    texts += attachments.texts_of(attachments.only_of(connection, entry.user, with_files))
    gone = {(what, key) for what, keys in entry.gone.items() if what != PERSON.what for key in keys}
    gone |= {(TASK.what, name) for name in entry.tasks if TASK.get(connection, entry.user, name) is None}
    if gone:
        for path in sorted((root / changes.MEMORY).glob("*.jsonl")):
            for change in _read(path, records.read):
                if change.user == entry.user and (change.kind.what, change.key) in gone and change.value is not None:
                    texts += change.kind.said(change.kind.fields(change.value))
    return quotes.look(connection, entry.user, texts, entry.messages, entry.asked)


def _read(path: Path, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """The records of a log, without lines that cannot be read."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                with suppress(*FAULTS):
                    yield read(parse(line))
