"""What the memory drill checks on a data folder that nobody has open, after the store was opened once since the kill.

Every function returns the problems that it found, in words; none is good news.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import attrs

from klaw.doctor import judge
from klaw.doctor.judge import Level
from klaw.domain.person import normal_name
from klaw.store.engine import connect
from klaw.store.forget import execute
from klaw.store.kinds import inventory
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.rebuild.logcheck import lacking, read_logs
from klaw.store.search import coverage
from klaw.store.store import read_offline

_WORD = re.compile(rb"q([a-z]{6})q", re.IGNORECASE)
"""What is to be forgotten has such a word, which stands nowhere else."""
_DANGLING = {
    "a fact is superseded by one that is not there": """
        SELECT count(*) FROM facts AS f WHERE superseded_by IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM facts AS n WHERE n.user_id = f.user_id AND n.id = f.superseded_by)""",
    "a person is merged into nobody": """
        SELECT count(*) FROM people AS p WHERE merged_into IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM people AS n WHERE n.user_id = p.user_id AND n.id = p.merged_into)""",
    "a mention names nobody": """
        SELECT count(*) FROM person_mentions AS m WHERE NOT EXISTS (
            SELECT 1 FROM person_changes AS c WHERE c.user_id = m.user_id AND c.person_id = m.person_id)""",
    "a topic of a message is not there, or another user's or chat's": """
        SELECT count(*) FROM messages AS m WHERE topic_id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM topics AS t WHERE t.id = m.topic_id AND t.user_id = m.user_id AND t.chat_id = m.chat_id)""",
    "an active fact has no full text": """
        SELECT count(*) FROM facts WHERE superseded_by IS NULL AND rowid NOT IN (SELECT id FROM facts_fts_docsize)""",
    "full text has a fact that is gone": """
        SELECT count(*) FROM facts_fts_docsize WHERE id NOT IN (
            SELECT rowid FROM facts WHERE superseded_by IS NULL)""",
    "a drawn message is not there": """
        SELECT count(*) FROM drawn_messages WHERE rowid NOT IN (SELECT rowid FROM messages)""",
}
_VECTORS = {
    "a fact that is gone has a vector": """
        SELECT count(*) FROM vec_facts WHERE rowid NOT IN (SELECT rowid FROM facts WHERE superseded_by IS NULL)""",
    "a message that is gone has a vector": """
        SELECT count(*) FROM vec_messages WHERE rowid NOT IN (SELECT rowid FROM messages WHERE content <> '')""",
}


def check_database(data: Path) -> list[str]:
    """The database is sound, no part of it names what is not there, and it has what the logs have."""
    wrong: list[str] = []

    def look(connection: apsw.Connection) -> None:
        for name, statement in {**_DANGLING, **_VECTORS}.items():
            try:
                found = connection.execute(statement).get
            except apsw.SQLError:
                if name in _VECTORS:
                    continue  # no vectors yet
                raise
            if found:
                wrong.append(f"{name} ({found})")
        if waiting := execute.pending(connection):
            wrong.append(f"{len(waiting)} forgettings are not finished")

    file = data / "klaw.db"
    read_offline(file, look)
    covered = read_offline(file, coverage.look_at_all, 20, 1)
    logs = read_logs(data, whole=True)
    findings = [
        *judge.judge_integrity(read_offline(file, connect.complaints, whole=True), whole=True),
        judge.judge_full_text(covered),
        judge.judge_covered(covered),
        judge.judge_rows("topics", "topics", read_offline(file, inventory.check, TOPIC)),
        judge.judge_tails(
            logs,
            read_offline(file, lacking, logs),
            read_offline(file, inventory.last_seqs),
            read_offline(file, inventory.last_numbers),
            running=False,
        ),
    ]
    wrong += [f"doctor: {each.text}" for each in findings if each.level is Level.PROBLEM]
    return wrong


def held(data: Path) -> dict[str, list[str]]:
    """Words of what is to be forgotten that stand in any file, and where."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(data.rglob("*")):
        if path.is_file():
            for word in {each.decode().lower() for each in _WORD.findall(path.read_bytes())}:
                found[f"q{word}q"].append(path.relative_to(data).as_posix())
    return found


@attrs.define
class Ledger:
    """What was acknowledged, and what was under way when the process died."""

    said: dict[str, set[str]] = attrs.Factory(lambda: defaultdict(set))
    done: list[dict[str, Any]] = attrs.Factory(list)
    begun: dict[str, Any] | None = None
    drawing: list[dict[str, Any]] = attrs.Factory(list)
    """Begun; the next life finishes them."""

    def take(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "said":
                self.said[line["user"]].update(line["ids"])
            case "begin":
                self.begun = line
                if line["about"] == "draw":
                    self.drawing.append(line)
            case "done":
                self.begun = None
                self.done.append(line)
            case "finished":
                self.done += self.drawing
                self.drawing.clear()

    def settle(self) -> None:
        """After the checks: what was under way is decided."""
        self.begun = None

    def check(self, data: Path) -> list[str]:
        """All that was acknowledged is there, what was under way is all there or not at all."""
        words = held(data)

        def look(connection: apsw.Connection) -> list[str]:
            wrong = [
                f"{user}: {len(ids - there)} messages are lost"
                for user, ids in self.said.items()
                if ids - (there := {row[0] for row in connection.execute(_IDS, (user,))})
            ]
            for line in self.done:
                wrong += _check(connection, line, words, (True,))
            if self.begun is not None:
                wrong += [f"under way: {each}" for each in _check(connection, self.begun, words, (False, True))]
            for line in self.drawing:
                wrong += [f"under way: {each}" for each in _once(connection, line)]
            return wrong

        return read_offline(data / "klaw.db", look)


_IDS = "SELECT id FROM messages WHERE user_id = ?"
_HOMES = "SELECT rowid, topic_id FROM messages WHERE user_id = ? AND rowid IN (SELECT value FROM json_each(?))"


def _check(
    connection: apsw.Connection, line: Mapping[str, Any], words: Mapping[str, Sequence[str]], allowed: tuple[bool, ...]
) -> list[str]:
    """Whether an operation is as far as it may be: ``True`` for carried out."""
    match line["about"]:
        case "topics":
            now = _groups(connection.execute(_HOMES, (line["user"], json.dumps(line["rowids"]))))
            states = {False: line["before"], True: line["after"]}
            if now not in [sorted(map(sorted, states[each])) for each in allowed]:
                return [f"topics are {now}, not {[states[each] for each in allowed]}"]
        case "supersede":
            rows = dict(connection.execute(_FACTS, (line["user"], line["older"], line["newer"])))
            states = {False: {line["older"]: None}, True: {line["older"]: line["newer"], line["newer"]: None}}
            if rows not in [states[each] for each in allowed]:
                return [f"facts are {rows}, not {[states[each] for each in allowed]}"]
        case "people":
            return _merged(connection, line, allowed)
        case "spend":
            count = connection.execute(_SPENT, (line["user"], f"test/{line['word']}")).get
            if count not in [int(each) for each in allowed]:
                return [f"spending is noted {count} times"]
        case "draw":
            return _once(connection, line, whole=allowed == (True,))
        case "forget":
            return _forgotten(connection, line, words, allowed)
    return []


def _groups(rows: Iterable[tuple[int, int | None]]) -> list[list[int]]:
    of: dict[int, list[int]] = defaultdict(list)
    for rowid, topic in rows:
        if topic is not None:
            of[topic].append(rowid)
    return sorted(sorted(each) for each in of.values())


_FACTS = "SELECT id, superseded_by FROM facts WHERE user_id = ? AND id IN (?, ?)"
_SPENT = """
SELECT count(*) FROM background_charges WHERE user_id = ? AND parts ->> '$[0].model' = ?
"""
_PERSON = "SELECT name, aliases, merged_into FROM people WHERE user_id = ? AND id = ?"
_NAMES = """
SELECT count(*) FROM person_names AS n JOIN people AS p ON p.rowid = n.person
WHERE p.user_id = ? AND p.id = ? AND n.normal IN (SELECT value FROM json_each(?))
"""


def _merged(connection: apsw.Connection, line: Mapping[str, Any], allowed: tuple[bool, ...]) -> list[str]:
    user, loser, keeper = line["user"], line["loser"], line["keeper"]
    names = json.dumps([normal_name(each) for each in line["names"]])
    known = [connection.execute(_NAMES, (user, each, names)).get for each in (loser, keeper)]
    into = connection.execute(_PERSON, (user, loser)).fetchone()
    state = (known, into and into[2])
    states = {False: ([2, 2], None), True: ([0, 4], keeper)}
    if state not in [states[each] for each in allowed]:
        return [f"people are {state}, not {[states[each] for each in allowed]}"]
    return []


_STATED = "SELECT count(*) FROM facts WHERE user_id = ? AND text LIKE ? AND superseded_by IS NULL"
_KNOWN = "SELECT count(*) FROM people WHERE user_id = ? AND name = ? AND merged_into IS NULL"
_MENTIONS = """
SELECT count(*) FROM person_mentions AS m JOIN people AS p ON p.id = m.person_id AND p.user_id = m.user_id
WHERE p.user_id = ? AND p.name = ?
"""


def _once(connection: apsw.Connection, line: Mapping[str, Any], *, whole: bool = False) -> list[str]:
    """Each statement and each person of a draw is there at most once; ``whole``: exactly once."""
    user = line["user"]
    counts = {word: connection.execute(_STATED, (user, f"{word} is %")).get for word in line["words"]}
    counts |= {name: connection.execute(_KNOWN, (user, name)).get for name in line["names"]}
    least = {line["words"][-1]: 1}  # the one that is changed is there before and after
    wrong = [
        f"what was drawn of {word} is there {each} times"
        for word, each in counts.items()
        if not (1 if whole else least.get(word, 0)) <= each <= 1
    ]
    if whole:
        stale = connection.execute(_FACTS, (user, line["old"], "")).fetchone()
        if stale is None or stale[1] is None:
            wrong.append("what was changed still holds")
        wrong += [
            f"{name} is mentioned {each} times"
            for name in line["names"]
            if (each := connection.execute(_MENTIONS, (user, name)).get) != 1
        ]
    return wrong


_CONTENT = "SELECT content <> '' FROM messages WHERE rowid = ?"
_QUOTES = "SELECT count(*) FROM facts WHERE user_id = ? AND instr(lower(text), ?)"


def _forgotten(
    connection: apsw.Connection, line: Mapping[str, Any], words: Mapping[str, Sequence[str]], allowed: tuple[bool, ...]
) -> list[str]:
    user, word = line["user"], line["word"]
    there = [bool(connection.execute(_CONTENT, (line["message"],)).get)]
    there.append(bool(connection.execute(_QUOTES, (user, word)).get))
    if line["person"] is not None:
        there.append(connection.execute(_PERSON, (user, line["person"])).fetchone() is not None)
    if all(there) and False in allowed:
        return []
    if any(there):
        return [f"{word} is half forgotten: {there}"]
    return [f"{word} is forgotten and still in {each}" for each in words.get(word, ())]
