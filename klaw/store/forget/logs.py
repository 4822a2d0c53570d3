"""Forgetting in the logs: what their lines become, and the logs without what was forgotten.

The logs are cleaned in two rounds, so that a kill at any point leaves what the next start needs: first what quotes the
forgotten texts, also copies of summaries, then the texts' own lines. All functions block; those that take a
``StoppedStore`` or a journal run in the writer's thread. What cannot be cleaned raises StorageError; the next start
cleans it.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import structlog

from klaw.actor.failure import error_class, where
from klaw.config.paths import encode_name
from klaw.domain.forget import MARK, PieceFinder
from klaw.domain.names import LOCAL_USER, UserId, name_of
from klaw.errors import StorageError
from klaw.store import changes, rows
from klaw.store.engine import connect, meta
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_files import FAULTS, parse
from klaw.store.engine.log_rewrite import DRAFT, STEP_BYTES, LogRewrite
from klaw.store.engine.transaction import StoppedStore
from klaw.store.forget import execute
from klaw.store.forget.journal_entry import ForgetEntry
from klaw.store.forget.quotes import is_said_again
from klaw.store.kinds import forgotten, messages, runs, summaries, turns
from klaw.store.kinds.chats import CHAT
from klaw.store.kinds.core_memory import CORE
from klaw.store.kinds.knowledge.bases import BASE
from klaw.store.kinds.knowledge.sources import SOURCE
from klaw.store.kinds.people import MENTION
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.summaries import COPIES, SUMMARY, copy_path
from klaw.store.kinds.topic_changes import TOPIC

LOGS = (messages.CONVERSATIONS, turns.TURNS, runs.RUNS, changes.MEMORY)
"""In the order in which they are cleaned: that of memory knows a person's names, for which the others are cleaned."""
MOST_BUSY_MS = 500
"""Readers of this process are through sooner; everybody waits meanwhile."""

_MESSAGE = re.compile(rb'\{"rowid":(\d{1,19}),')

log = structlog.get_logger("klaw.forget")


def is_log(name: str) -> bool:
    """Whether a file of the data folder is a log of records."""
    return name.endswith(".jsonl") and name.split("/", 1)[0] in LOGS


# -- lines -------------------------------------------------------------------------------------------------------------


def needles(pieces: Sequence[str]) -> list[bytes]:
    """The bytes to look for: as text and as JSON has it. A long piece also by its beginning and its middle, because a
    database spreads it over pages."""
    parts = [part for piece in pieces for part in (piece, *_parts(piece))]
    found = {part.encode() for part in parts} | {rows.dumps(part)[1:-1].encode() for part in parts}
    return sorted(found)


def _parts(piece: str) -> tuple[str, ...]:
    middle = len(piece) // 2
    return (piece[:40], piece[middle : middle + 40]) if len(piece) > 120 else ()


class Cleaner:
    """What the lines of logs become. Made by a connection after the forgetting was carried out.

    Args:
        entry: the forgetting.
        finder: finds the texts that are taken out wherever the user's records quote them.
    """

    own = False
    """Whether the texts' own lines go too: the second round."""

    def __init__(self, connection: apsw.Connection, entry: ForgetEntry, finder: PieceFinder) -> None:
        user = entry.user
        self.entry, self._finder = entry, finder
        self._messages = frozenset(entry.messages)
        self._first = min(entry.asked, default=0)
        self._gone = {**entry.gone, BASE.what: entry.knowledge, SOURCE.what: entry.knowledge}
        self._deleted = [name_of(chat) for chat, _ in entry.deleted]
        self._keep = {kind.what for kind in KINDS if kind.on_purpose}
        # What lines are to say, as the database does.
        self._past = forgotten.past_values(connection, user, entry.past)
        for kind in (kind for kind in KINDS if kind.forgets_past):
            query = f"SELECT entry, value FROM {kind.past} WHERE user_id = ? AND value IS NOT NULL"  # noqa: S608
            self._past |= {number: json.loads(value) for number, value in connection.execute(query, (user,))}
        self._receipts = turns.receipts(connection, user, (*entry.turns, *entry.used))
        self._runs = forgotten.run_texts(connection, user, (*entry.runs, *entry.ran))
        # Nobody can see or restore the earlier texts of a kind without history: they go with any forgetting.
        no_history = (each for each in KINDS if each.ops and each.quotes and not each.past and each.made_of is None)
        self._no_history = {each.what: each for each in no_history}
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

    def changes(self, path: Path, name: str) -> bool:
        cleaned = self.line_of(name)
        with path.open("rb") as file:
            return any(cleaned(line) != line for line in (raw.rstrip(b"\n") for raw in file))

    def _marks(self, kind: str) -> list[bytes]:
        """What stands in lines that may be the own ones."""
        if kind == messages.CONVERSATIONS:
            return [f'"run":{rows.dumps(run)}'.encode() for run in self.entry.ran]
        if kind == turns.TURNS:
            return [f'"turn_id":{rows.dumps(turn)},'.encode() for turn in self._receipts]
        if kind == runs.RUNS:
            return [f'"id":{rows.dumps(run)},'.encode() for run in self._runs]
        return [f'"what":"{each.what}"'.encode() for each in KINDS if each.ops and each.quotes]

    def _clean(self, kind: str, record: dict[str, Any]) -> dict[str, Any]:
        if kind == messages.CONVERSATIONS:
            rowid, run = record.get("rowid"), (record.get("metadata") or {}).get("run")
            if rowid in self._messages:
                return self._emptied(record) if self.own else record
            if rowid is None and run in self.entry.ran:
                return self._emptied(record, run=run) if self.own else record
            if rowid is not None and (rowid < self._first or self._is_said_again(record)):
                return record
            return self._redacted(record, "content", "metadata")
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

    def _is_said_again(self, record: dict[str, Any]) -> bool:
        role, content = record.get("role"), record.get("content")
        return isinstance(role, str) and isinstance(content, str) and is_said_again(role, content, self._finder)

    def _emptied(self, record: dict[str, Any], **metadata: str) -> dict[str, Any]:
        gone = {"role": "system", "type": "command", "content": "", "tokens": 0}
        return {**record, **gone, "metadata": {**forgotten.tombstone(self.entry.time), **metadata}}

    def _of_memory(self, record: dict[str, Any]) -> dict[str, Any]:
        what, key, value = str(record.get("what")), record.get("key"), record.get("value")
        if not isinstance(value, dict) or what in (execute.FORGET.what, MENTION.what):
            return record
        before = record.get("entry", 0) < self.entry.entry
        if self.own and before and key in self._gone.get(what, ()):
            return {**{name: each for name, each in record.items() if name != "value"}, "op": "remove"}
        if what in self._keep:
            return self._of_kept(record, what, value) if self.own else record
        if self.own and before:
            if what == CHAT.what and key in self._deleted:
                return {**record, "value": {name: each for name, each in value.items() if name != "title"}}
            if what == SUMMARY.what and key in {summaries.summary_key(each) for each in self.entry.summaries}:
                notes = [{**note, "text": MARK} for note in value.get("notes", [])]
                return {**record, "value": {**value, "text": MARK, "notes": notes}}
            if what == TOPIC.what and "topics" in value:
                topics = (
                    {**state, "summary": MARK} if state.get("id") in self.entry.topics else state
                    for state in value["topics"]
                )
                value = {**value, "topics": list(topics)}
            value = self._as_now(what, key, value)
        return {**record, "value": self._finder.taken_out(value)}

    def _of_kept(self, record: dict[str, Any], what: str, value: dict[str, Any]) -> dict[str, Any]:
        """A line of what people keep on purpose: it goes as a whole, or stays."""
        if record.get("entry") in self._past:
            return {**record, "value": self._past[record["entry"]]}
        if record.get("entry", 0) >= self.entry.entry:
            return record
        value = self._as_now(what, record.get("key"), value)
        if what == CORE.what and self.entry.core:  # later lines say what these are now
            value = {**value, "document": {}, "replaces": ""}
        return {**record, "value": value}

    def _as_now(self, what: str, key: object, value: dict[str, Any]) -> dict[str, Any]:
        """A value of a kind without history, with only those texts that still hold."""
        kind = self._no_history.get(what)
        if kind is None:
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
            if _may_hold_lines_of(name, cleaner.entry.user) and cleaner.changes(path, name):
                found.append(name)
    return found


def _may_hold_lines_of(name: str, user: UserId) -> bool:
    top, _, rest = name.partition("/")
    if top != messages.CONVERSATIONS:
        return True
    if runs.is_transcript(name):
        return rest.partition("/")[0].partition("@")[2] == ("" if user == LOCAL_USER else user)
    return rest.startswith(encode_name(f"{user}:"))


def clean(journal: Journal, root: Path, cleaner: Cleaner) -> int:
    """Clean all logs by one round. Returns how many lines changed."""
    journal.checkpoint()
    return sum(journal.rewrite(path, cleaner.line_of(path)) for path in logs_with(root, cleaner))


def remove_drafts(root: Path) -> None:
    """Remove what a kill left of rewritten logs: it may say what was to go."""
    for folder in LOGS:
        for path in (root / folder).rglob(DRAFT.format("*.jsonl")):
            path.unlink(missing_ok=True)


def remove_copies(root: Path, entry: ForgetEntry, finder: PieceFinder) -> None:
    """Remove the Markdown copies of summaries that are gone or quote a piece; what is still there is copied again."""
    for chat, number in entry.summaries:
        (root / copy_path(chat, number)).unlink(missing_ok=True)
    folders = (root / COPIES).iterdir() if finder and (root / COPIES).is_dir() else ()
    for folder in folders:
        if folder.name.startswith(encode_name(f"{entry.user}:")) and folder.is_dir() and not folder.is_symlink():
            for path in folder.iterdir():
                if path.is_file() and finder.found_in(path.read_text("utf-8", "replace")):
                    path.unlink(missing_ok=True)


def compact(connection: apsw.Connection, *, vacuum: bool) -> bool:
    """Bring all that was written into the database file and empty the write-ahead log. Returns whether it was emptied:
    not while another process, such as a backup, reads an older state; then it is still owed.

    Args:
        vacuum: rebuild the file, so that no page holds what was once there.
    """
    execute.merge_small_indexes(connection)
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
