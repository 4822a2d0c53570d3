"""What the crash drill checks on the disk of a server that does not run: logs, database, and one against the other.

Every function returns the problems that it found, in words; none is good news.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import attrs

from klaw.domain.message import Message, TurnRecord
from klaw.domain.task import Run
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.kinds import messages as stored_messages
from klaw.store.kinds import turns as stored_turns
from klaw.store.kinds.runs import RUNS, RunState, is_transcript, parse_run
from klaw.store.rows import dumps
from klaw.store.store import read_offline

MAX_NAMED = 5
"""Instances of one problem that are named; the rest is counted."""


@attrs.frozen
class Acked:
    """A message that the server has acknowledged."""

    id: str
    chat: str
    """The chat's name."""
    seq: int
    text: str


@attrs.frozen(kw_only=True)
class Disk:
    """What the logs hold."""

    messages: Sequence[Message]
    turns: Sequence[TurnRecord]
    torn: int
    """Lines that are no record."""


# -- reading -----------------------------------------------------------------------------------------------------------


def read_logs(data: Path) -> Disk:
    """Read all logs of a data folder, in the order of files and lines, and what the commit log alone has (after damage,
    until the next start has put it back)."""
    committed: dict[str, list[bytes]] = defaultdict(list)
    for path, line in _commit_lines(data):
        committed[path].append(line)
    messages: list[Message] = []
    turns: list[TurnRecord] = []
    torn = 0
    names = {str(path.relative_to(data)) for path in data.glob("*/**/*.jsonl")}
    for name in sorted(names | committed.keys()):
        path = data / name
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        present = set(lines)
        for line in (*lines, *(line for line in committed[name] if line not in present)):
            try:
                record = json.loads(line)
            except ValueError:
                torn += bool(line)
                continue
            if name.startswith(f"{stored_turns.TURNS}/"):
                turns.append(stored_turns.parse(record))
            elif name.startswith(f"{stored_messages.CONVERSATIONS}/") and not is_transcript(name):
                messages.append(stored_messages.parse_message(record))
    return Disk(messages=messages, turns=turns, torn=torn)


def read_runs(data: Path) -> dict[str, Run]:
    """The last state of each run in the logs, and in the commit log, by the run's id."""
    states: dict[str, RunState] = {}
    lines = [line for path in sorted(data.glob(f"{RUNS}/*.jsonl")) for line in path.read_bytes().split(b"\n")]
    lines += [line for path, line in _commit_lines(data) if path.startswith(f"{RUNS}/")]
    for line in lines:
        try:
            state = parse_run(json.loads(line))
        except ValueError:
            continue  # torn
        if state.run.id not in states or states[state.run.id].change <= state.change:
            states[state.run.id] = state
    return {run: state.run for run, state in states.items()}


def _commit_lines(data: Path) -> Iterator[tuple[str, bytes]]:
    path = data / COMMIT_LOG
    for raw in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        name, _, line = raw.partition(b"\t")
        yield name.decode(), line.lstrip(b" ")


# -- checks ------------------------------------------------------------------------------------------------------------


def check_acked(disk: Disk, acked: Iterable[Acked]) -> list[str]:
    """Every acknowledged message stands in the logs exactly once, with its seq and text."""
    found = defaultdict(list)
    for message in disk.messages:
        found[message.id].append(message)
    wrong = []
    for each in acked:
        copies = found[each.id]
        if len(copies) != 1:
            wrong.append(f"{each.chat} {each.seq}: acknowledged, but {len(copies)} times in the logs")
        elif (copies[0].seq, copies[0].content) != (each.seq, each.text):
            wrong.append(f"{each.chat} {each.seq}: in the logs with seq {copies[0].seq} or another text")
    return _few(wrong)


def check_order(disk: Disk) -> list[str]:
    """Every chat's seqs are 1, 2, 3 … in the order of its logs; no id, no rowid twice."""
    wrong = []
    chats: dict[str, list[int]] = defaultdict(list)
    for message in disk.messages:
        chats[message.chat].append(message.seq)
    for chat, seqs in chats.items():
        if seqs != list(range(1, len(seqs) + 1)):
            wrong.append(f"{chat}: {len(seqs)} messages, and their seqs in the logs are not 1 to {len(seqs)} in order")
    for what, values in (
        ("id", [(message.user, message.id) for message in disk.messages]),
        ("rowid", [message.rowid for message in disk.messages]),
    ):
        wrong += [f"{what} {value} stands in the logs {count} times" for value, count in _repeated(values)]
    return _few(wrong)


def check_answers(disk: Disk) -> list[str]:
    """Every user's message is covered by exactly one finished turn; every finished turn stored exactly one answer."""
    wrong = [f"turn {turn} is recorded {count} times" for turn, count in _repeated([turn.id for turn in disk.turns])]
    done = [turn for turn in disk.turns if turn.status == "done"]
    spoken = [
        message
        for message in disk.messages
        if message.role == "assistant" and message.type == "text" and "run" not in message.metadata
    ]
    answers = Counter(message.metadata.get("turn") for message in spoken)
    wrong += [f"turn {turn.id} has {answers[turn.id]} answers" for turn in done if answers[turn.id] != 1]
    strange = answers.keys() - {turn.id for turn in done}
    wrong += [f"answers of a turn that is not recorded as done: {turn}" for turn in strange]
    spans = defaultdict(list)
    for turn in done:
        spans[turn.chat].append((turn.first_seq, turn.last_seq))
    for message in disk.messages:
        if message.role == "user" and message.type == "text":
            covering = sum(first <= message.seq <= last for first, last in spans[message.chat])
            if covering != 1:
                wrong.append(f"{message.chat} {message.seq}: answered {covering} times")
    return _few(wrong)


def check_database(database: Path, disk: Disk) -> list[str]:
    """The database is sound, and holds what the logs hold: the same messages and turns, all in full text."""

    def read(connection: apsw.Connection) -> tuple[str, list[Any], set[str], int]:
        columns = "rowid, id, chat_id, seq, role, type, content, metadata, created_at, segment"
        rows = list(connection.execute(f"SELECT {columns} FROM messages ORDER BY rowid"))
        turns = {row[0] for row in connection.execute("SELECT turn_id FROM turns")}
        indexed = connection.execute("SELECT count(*) FROM messages_fts_docsize").get
        return str(connection.execute("PRAGMA quick_check").get), rows, turns, int(indexed)

    verdict, rows, turns, indexed = read_offline(database, read)
    wrong = [] if verdict == "ok" else [f"the database is damaged: {verdict}"]
    in_logs = [
        (m.rowid, m.id, m.chat, m.seq, m.role, m.type, m.content, dumps(m.metadata), m.created_at, m.segment)
        for m in sorted(disk.messages, key=lambda m: m.rowid)
    ]
    if rows != in_logs:
        differ = sum(a != b for a, b in zip(rows, in_logs, strict=False))
        wrong.append(f"{len(rows)} messages in the database, {len(in_logs)} in the logs; {differ} differ")
    if turns != {turn.id for turn in disk.turns}:
        wrong.append(f"{len(turns)} turns in the database, {len(disk.turns)} in the logs, or others")
    searchable = sum(m.role in ("user", "assistant") and m.type in ("text", "scheduled") for m in disk.messages)
    if indexed != searchable:
        wrong.append(f"{indexed} messages in full text, {searchable} in the logs that should be")
    return wrong


def check_seen(who: str, seen: Sequence[tuple[int, str, str]], wanted: Sequence[tuple[int, str, str]]) -> list[str]:
    """What somebody saw of a chat (seq, id, text), in the order of seeing, is what is stored."""
    if list(seen) == list(wanted):
        return []
    seqs = [seq for seq, *_ in seen]
    if len(seqs) != len(wanted) or seqs != [seq for seq, *_ in wanted]:
        return [f"{who}: saw {len(seqs)} messages ({len(set(seqs))} different), {len(wanted)} are stored"]
    seq, *differ = next(
        (a[0], a[1], b[1], "texts differ" if a[2] != b[2] else "same text")
        for a, b in zip(seen, wanted, strict=True)
        if a != b
    )
    return [f"{who}: saw other texts or ids than are stored, first {seq}: {', '.join(differ)}"]


def by_chat(disk: Disk) -> dict[str, list[tuple[int, str, str]]]:
    """(seq, id, text) of the logs' messages by chat name, in order."""
    chats: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for message in sorted(disk.messages, key=lambda message: message.seq):
        chats[message.chat.partition(":")[2]].append((message.seq, message.id, message.content))
    return chats


# -- damage ------------------------------------------------------------------------------------------------------------


def lose_unsynced_tails(data: Path, chance: random.Random) -> int:
    """Take from the logs what a power cut may take: any part of what only the commit log has made durable. Returns
    the bytes lost. A cut in the middle of a line tears it."""
    first_of: dict[str, bytes] = {}
    for path, line in _commit_lines(data):
        first_of.setdefault(path, line)
    lost = 0
    for path, line in first_of.items():
        log = data / path
        content = log.read_bytes() if log.exists() else b""
        start = content.find(line)
        if start >= 0:
            keep = chance.randint(start, len(content))
            lost += len(content) - keep
            with log.open("rb+") as file:
                file.truncate(keep)
    return lost


def delete_database(database: Path) -> None:
    """Lose the index altogether; the logs have it all."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)


# -- words -------------------------------------------------------------------------------------------------------------


def check_log(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """The server's log has no errors: being killed is no error of the server that starts after it."""
    wrong = [event for event in events if event["level"] in ("error", "critical")]
    counts = Counter((event["event"], event.get("error", ""), event.get("where", "")) for event in wrong)
    return [f"the server's log has the error {' '.join(filter(None, name))} {n} times" for name, n in counts.items()]


def _repeated(values: Iterable[Any]) -> list[tuple[Any, int]]:
    return [(value, count) for value, count in Counter(values).items() if count > 1]


def _few(problems: list[str]) -> list[str]:
    rest = len(problems) - MAX_NAMED
    return problems if rest <= 0 else [*problems[:MAX_NAMED], f"… and {rest} more like these"]
