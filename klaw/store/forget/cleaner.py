"""Forgetting in the logs: what their lines become, and the bytes that say which lines those are. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from klaw.domain.forget import MARK, Quotes
from klaw.domain.names import name_of
from klaw.store import changes, rows
from klaw.store.engine.log_files import FAULTS, parse
from klaw.store.forget import applying
from klaw.store.forget.entry import ForgetEntry, Lines
from klaw.store.forget.quoting import is_said_again
from klaw.store.kinds import chats, core_memory, facts, messages, people, runs, summaries, tasks, topic_changes, turns
from klaw.store.kinds.knowledge import bases, sources

_MESSAGE = re.compile(rb'\{"rowid":(\d{1,19}),')
_OWN_LINES = tuple(
    f'"what":"{what}"'.encode()
    for what in ("topic", "summary", "fact", "person", "task", "core", "chat", "kb", "kb_source")
)


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
    """What the lines of logs become.

    Args:
        entry: the forgetting.
        pieces: texts that are taken out wherever the user's records quote them.
        own: whether the texts' own lines go too.
        lines: what lines are to say.
    """

    def __init__(self, entry: ForgetEntry, pieces: Sequence[str], *, own: bool, lines: Lines) -> None:
        self.entry, self.pieces, self.own, self.lines = entry, pieces, own, lines
        self._quotes = Quotes.of(pieces)
        self._messages = frozenset(entry.messages)
        self._first = min(entry.asked, default=0)
        self._gone: Mapping[str, Sequence[str]] = {
            facts.FACT.what: entry.facts,
            people.PERSON.what: entry.people,
            bases.BASE.what: entry.knowledge,
            sources.SOURCE.what: entry.knowledge,
        }

    @property
    def _deleted(self) -> list[str]:
        return [name_of(chat) for chat, _ in self.entry.deleted]

    def line_of(self, path: str) -> Callable[[bytes], bytes]:
        """For ``Journal.rewrite``. What the lines of other users say makes no difference, not even to the time."""
        mine = f'"user_id":{rows.dumps(self.entry.user)}'.encode()
        kind = path.split("/", 1)[0]
        is_own, is_later = self._own_lines(kind), self._later_lines(kind)

        def cleaned(line: bytes) -> bytes:
            if mine not in line or is_later(line):
                return line
            if not is_own(line) and not self._quotes.may_stand_in(line.decode(errors="replace")):
                return line
            try:
                record = parse(line)
                if record.get("user_id") != self.entry.user:
                    return line
                new = self._clean(kind, record)
                return line if new == record else rows.dumps(new).encode()
            except FAULTS:
                # A torn or odd line: no reader takes it, and it must not hold the text.
                return b"" if any(each in line for each in needles(self.pieces)) else line

        return cleaned

    def changes(self, path: Path, name: str) -> bool:
        """Whether a log has a line to clean."""
        cleaned = self.line_of(name)
        with path.open("rb") as file:
            return any(cleaned(line) != line for line in (raw.rstrip(b"\n") for raw in file))

    def _own_lines(self, kind: str) -> Callable[[bytes], bool]:
        """Tells by its bytes whether a line may be one of the own: so that not every line of a log has to be parsed."""
        marks = self._marks(kind) if self.own else []

        def is_own(line: bytes) -> bool:
            message = _MESSAGE.match(line) if kind == messages.CONVERSATIONS and self.own else None
            return int(message[1]) in self._messages if message else any(each in line for each in marks)

        return is_own

    def _later_lines(self, kind: str) -> Callable[[bytes], bool]:
        """Tells by its bytes whether a line is one of the messages that go, when it is not the round for those."""
        if self.own or kind != messages.CONVERSATIONS:
            return lambda _line: False
        return lambda line: (message := _MESSAGE.match(line)) is not None and int(message[1]) in self._messages

    def _marks(self, kind: str) -> list[bytes]:
        if kind == messages.CONVERSATIONS:
            return [f'"run":{rows.dumps(run)}'.encode() for run in self.entry.ran]
        if kind == turns.TURNS:
            return [f'"turn_id":{rows.dumps(turn)},'.encode() for turn in self.lines.receipts]
        if kind == runs.RUNS:
            return [f'"id":{rows.dumps(run)},'.encode() for run in self.lines.runs]
        return [*_OWN_LINES] if kind == changes.MEMORY else []

    def _clean(self, kind: str, record: dict[str, Any]) -> dict[str, Any]:
        if kind == messages.CONVERSATIONS:
            rowid = record.get("rowid")
            if rowid is not None and rowid in self._messages:
                return self._emptied(record) if self.own else record
            run = (record.get("metadata") or {}).get("run")
            if rowid is None and run in self.entry.ran:
                return self._emptied(record, run=run) if self.own else record
            if rowid is not None and (rowid < self._first or self._is_said_again(record)):
                return record
            return self._redacted(record, "content", "metadata")
        if kind == turns.TURNS:
            if self.own and record.get("turn_id") in self.lines.receipts:
                return {**record, "receipt": self.lines.receipts[record["turn_id"]]}
            return self._redacted(record, "receipt")
        if kind == runs.RUNS:
            if self.own and record.get("id") in self.lines.runs:
                return runs.without_names(record, self.lines.runs[record["id"]])
            return self._redacted(record, "message", "result", "note", "error", "details")
        return self._of_memory(record)

    def _redacted(self, record: dict[str, Any], *names: str) -> dict[str, Any]:
        return {**record, **{name: self._quotes.taken_out(record[name]) for name in names if name in record}}

    def _is_said_again(self, record: dict[str, Any]) -> bool:
        role, content = record.get("role"), record.get("content")
        return isinstance(role, str) and isinstance(content, str) and is_said_again(role, content, self._quotes)

    def _emptied(self, record: dict[str, Any], **metadata: str) -> dict[str, Any]:
        gone = {"role": "system", "type": "command", "content": "", "tokens": 0}
        return {**record, **gone, "metadata": {**applying.tombstone(self.entry.time), **metadata}}

    def _of_kept(self, record: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        """A task that was removed, core memory that has changed: later lines say what they are now."""
        if record["what"] == core_memory.CORE.what and self.entry.core:
            return {**record, "value": {**value, "document": {}, "replaces": ""}}
        if record["what"] == tasks.TASK.what and record.get("key") in self.entry.tasks:
            return {**record, "value": {**value, "message": MARK}}
        return record

    def _without_past(self, record: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        """Of what has no history only what holds now."""
        if self.lines.now is None:
            return record
        what = str(record["what"])
        now = self.lines.now.get((what, str(record.get("key") or "")), {})
        gone = [name for name in applying.NO_HISTORY[what] if value.get(name) and value[name] != now.get(name)]
        empty: dict[str, Any] = {"document": {}}
        return {**record, "value": {**value, **{name: empty.get(name, MARK) for name in gone}}} if gone else record

    def _of_memory(self, record: dict[str, Any]) -> dict[str, Any]:
        what, value = record.get("what"), record.get("value")
        if not isinstance(value, dict) or what in (applying.FORGET.what, people.MENTION.what):
            return record
        before = record.get("entry", 0) < self.entry.entry
        if what == chats.CHAT.what and self.own and before and record.get("key") in self._deleted:
            return {**record, "value": {name: each for name, each in value.items() if name != "title"}}
        if what in applying.NO_HISTORY and self.own and before and record.get("key") not in self.entry.knowledge:
            record = self._without_past(record, value)
            value = record["value"]
        if what in (tasks.TASK.what, core_memory.CORE.what):
            return self._of_kept(record, value) if self.own and before else record
        if what == people.PERSON.what and self.own and record.get("entry") in self.lines.people:
            return {**record, "value": self.lines.people[record["entry"]]}
        gone = self._gone.get(str(what))
        if gone is not None:
            if record.get("key") not in gone or not before:
                return record  # a fact, a person or a base that is kept
            emptied = {name: each for name, each in record.items() if name != "value"}
            return {**emptied, "op": "remove"} if self.own else record
        if what == summaries.SUMMARY.what:
            mine = record.get("key") in {summaries.summary_key(each) for each in self.entry.summaries}
            if self.own and mine and before:
                notes = [{**note, "text": MARK} for note in value.get("notes", [])]
                return {**record, "value": {**value, "text": MARK, "notes": notes}}
        if what == topic_changes.TOPIC.what and self.own and before:
            states = [
                {**state, "summary": MARK} if state.get("id") in self.entry.topics else state
                for state in value.get("topics", [])
            ]
            if "topics" in value:
                value = {**value, "topics": states}
        return {**record, "value": self._quotes.taken_out(value)}
