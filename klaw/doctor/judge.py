"""What was read of database and logs, judged. Pure."""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from klaw.domain.names import ChatId
from klaw.domain.text import listed, plural
from klaw.store.engine.set_aside import FOLDER
from klaw.store.engine.tables import Bound
from klaw.store.kinds.inventory import Soundness
from klaw.store.rebuild.logcheck import LackingRecords, LogReport
from klaw.store.search.coverage import WholeLook

REBUILD = "stop the server and run `klaw reindex --accept-differences`: it makes the database again from the logs"
BY_ITSELF = "a running server repairs it automatically; if it does not"
NAMED_GAPS = 5
NAMED_MESSAGES = 20


class Level(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Worth knowing; Klaw works."""
    PROBLEM = "problem"
    """Something is wrong and somebody has to do something."""


@attrs.frozen(kw_only=True)
class Finding:
    name: str
    level: Level
    text: str
    todo: str | None = None


def ok(name: str, text: str) -> Finding:
    return Finding(name=name, level=Level.OK, text=text)


def warning(name: str, text: str, todo: str | None = None) -> Finding:
    return Finding(name=name, level=Level.WARNING, text=text, todo=todo)


def problem(name: str, text: str, todo: str) -> Finding:
    return Finding(name=name, level=Level.PROBLEM, text=text, todo=todo)


def _faults(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{count} {text}" for text, count in counts.items() if count)


def judge_schema(found: int, known: int) -> Finding:
    if found > known:
        text = f"the database has schema {found}, this Klaw knows {known}"
        return problem("schema", text, "install the newer Klaw, or restore a backup")
    if found < known:
        text = f"the database has schema {found}, this Klaw writes {known}"
        return warning("schema", text, "nothing: the next start brings it up to date")
    return ok("schema", f"version {found}")


def judge_integrity(complaints: Sequence[str], *, whole: bool) -> list[Finding]:
    """SQLite's complaints; those about full text by themselves, because they have another cause and remedy."""
    about_text = [each for each in complaints if "fts5" in each.lower()]
    rest = [each for each in complaints if each not in about_text]
    how = "integrity_check" if whole else "quick_check; --full looks at every index too"
    found = [ok("integrity", f"the file is in order ({how})")]
    if rest:
        found = [problem("integrity", f"{plural(len(rest), 'complaint')} of SQLite: {listed(rest, 3)}", REBUILD)]
    if about_text:
        found.append(problem("full_text", f"its structure is damaged: {listed(about_text, 3)}", REBUILD))
    return found


def judge_full_text(covered: WholeLook) -> Finding:
    damage = covered.damage
    if covered.stray_texts:
        text = f"{plural(covered.stray_texts, 'row')} stand under another chat than their message"
        return problem("full_text", text, REBUILD)
    if damage.missing_texts:
        text = f"{plural(len(damage.missing_texts), 'message')} have no row in it"
        return problem("full_text", text, f"{BY_ITSELF}: {REBUILD}")
    if damage.orphan_texts:
        text = f"{plural(len(damage.orphan_texts), 'row')} belong to no message that is searched; they are never shown"
        return warning("full_text", text, REBUILD)
    rows = sum(tally.in_text for tally in covered.tallies.values())
    return ok("full_text", f"{plural(rows, 'message')} can be found by {'its' if rows == 1 else 'their'} words")


def judge_vectors(covered: WholeLook, *, enabled: bool) -> Finding:
    damage = covered.damage
    if covered.stray_vectors:
        text = f"{plural(covered.stray_vectors, 'vector')} stand under another chat than their message"
        return problem("vectors", text, REBUILD)
    counts = {
        "marked as made and not there": len(damage.lost_vectors),
        "there and not marked": len(damage.unmarked_vectors),
        "of no message": len(damage.orphan_vectors),
    }
    if faults := _faults(counts):
        return problem("vectors", faults, f"{BY_ITSELF}: {REBUILD}")
    have = sum(tally.with_vector for tally in covered.tallies.values())
    if covered.model is None:
        return ok("vectors", "none were made yet")
    text = f"{plural(have, 'vector')} of {covered.model}, {plural(covered.waiting, 'message')} wait for one"
    if enabled and covered.waiting > have:
        return warning("vectors", text, "nothing: a running server makes them in the background")
    return ok("vectors", text)


def judge_rows(name: str, words: str, found: Soundness, *, waiting: int | None = None) -> Finding:
    """A kind's rows, called ``words``, against their history and their indexes; how many wait for a vector."""
    if text := _faults(found.faults):
        return problem(name, text, REBUILD)
    if not found.count:
        return ok(name, "there are none")
    count = f"{found.count} known" if name == "people" else plural(found.count, words.removesuffix("s"))
    return ok(name, f"{count}, in order" if waiting is None else f"{count} in order, {waiting} wait for a vector")


def judge_covered(covered: WholeLook) -> Finding:
    lost = {chat: covered.tallies[chat].uncovered(start) for chat, start in covered.window_starts.items()}
    total = sum(lost.values())
    searched = sum(tally.messages - tally.not_searchable for tally in covered.tallies.values())
    silent = sum(tally.wordless for tally in covered.tallies.values())
    if not total:
        note = f"; {silent} hold no word" if silent else ""
        return ok("covered", f"{plural(searched, 'message')}: the model sees them or a search finds them{note}")
    starts = covered.window_starts.items()
    names = [f"{chat}#{seq}" for chat, start in starts for seq in covered.tallies[chat].uncovered_seqs(start)]
    found = "1 message is" if total == 1 else f"{total} messages are"
    text = f"{found} neither seen by the model nor found by search: {listed(names, NAMED_MESSAGES)}"
    return problem("covered", text, f"`klaw why` tells about one of them; {BY_ITSELF}: {REBUILD}")


def chat_counts(covered: WholeLook) -> dict[ChatId, dict[str, Any]]:
    """The counts of each chat, those with something uncovered first."""
    counted = {
        chat: {
            "messages": tally.messages,
            "not_searchable": tally.not_searchable,
            "in_text": tally.in_text,
            "with_vector": tally.with_vector,
            "wordless": tally.wordless,
            "uncovered": tally.uncovered(covered.window_starts[chat]) if tally.lost else 0,
        }
        for chat, tally in covered.tallies.items()
    }
    return dict(sorted(counted.items(), key=lambda item: (-item[1]["uncovered"], item[0])))


def judge_logs(report: LogReport, *, whole: bool, running: bool) -> Finding:
    if report.unreadable:
        return problem("logs", f"cannot be read: {listed(report.unreadable)}", "correct owner and mode of the files")
    if report.malformed:
        count = sum(report.malformed.values())
        places = [f"{name} ({number})" for name, number in report.malformed.items()]
        todo = (
            "if somebody changed these files, restore them from a backup; a line that a power cut tore was never"
            " acknowledged. `klaw reindex` on a stopped server takes such lines out of the logs and keeps them in"
        )
        return warning("logs", f"{plural(count, 'line')} cannot be stored: {listed(places)}", f"{todo} {FOLDER}/")
    if report.torn and not running:
        todo = "nothing: it was never acknowledged, and the writer continues on a new line"
        return warning("logs", f"the last line is torn: {listed(report.torn)}", todo)
    seen = "every line" if whole else f"{plural(report.lines, 'line')}, the ends only (--full reads all)"
    aside = f"; {FOLDER}/ holds {plural(report.set_aside, 'line')}" if report.set_aside else ""
    return ok("logs", f"{plural(report.logs, 'log')} are in order; read: {seen}{aside}")


def judge_numbers(report: LogReport, in_database: int) -> Finding:
    """Judge whether each message of a chat and each change of memory has a number of its own, without gaps;
    ``in_database`` messages that the logs lack are in the database."""
    far = 0
    repeated = [f"{chat}#{seq}" for chat, numbers in report.seqs.items() for seq in numbers.repeated()]
    for word, numbers in (("row", report.rowids), ("memory", report.entries), ("run", report.changes)):
        repeated += [f"{word}#{number}" for number in numbers.repeated()]
        far += numbers.far()
    if far:
        text = f"numbers far above all others, which Klaw never gave: {far}"
        return warning("numbers", text, f"stop the server and run `klaw reindex`: it moves them to {FOLDER}/")
    if repeated:
        text = f"numbers that several records have: {listed(repeated, NAMED_GAPS)}"
        todo = f"{REBUILD}; one record keeps the number, the others are kept in {FOLDER}/"
        return problem("numbers", text, todo)
    gaps = [f"{chat}#{_span(gap)}" for chat, numbers in report.seqs.items() for gap in numbers.missing()]
    gaps += [f"memory#{_span(gap)}" for gap in report.entries.missing()]
    if not gaps:
        return ok("numbers", "every record has a number of its own, and none is missing")
    text = f"numbers are missing in the logs: {listed(gaps, NAMED_GAPS)}"
    if in_database:
        todo = (
            "put the lines back from a backup of conversations/; until then do not run `klaw reindex"
            " --accept-differences`, which would take them out of the database too"
        )
        return problem("numbers", f"{text}; the database has {plural(in_database, 'message')} of them", todo)
    return warning("numbers", text, "if a backup has these lines, put them back; Klaw works without them")


def _span(gap: tuple[int, int]) -> str:
    first, last = gap
    return str(first) if first == last else f"{first} to {last}"


def judge_tails(
    report: LogReport,
    missing: LackingRecords,
    last_seqs: Mapping[ChatId, int],
    last: Mapping[Bound, int],
    *,
    running: bool,
) -> Finding:
    """Compare the logs, which were read before, with the database: with what it lacks of them, with the newest message
    of each chat there, and with its highest numbers. That of a running server cannot be behind."""
    ahead = [chat for chat, seq in last_seqs.items() if seq > report.last_seqs.get(chat, 0)]
    newer = last["change"] > max(report.runs.values(), default=0) or last["entry"] > report.entries.last(0)
    lost = "from a backup: lines are missing, and a rebuild would lose them"
    if newer and not running:
        text = "the database has newer tasks or runs than the logs"
        return problem("log_tails", text, f"restore the folders memory/ and runs/ {lost}")
    if ahead and not running:
        text = f"the database has newer messages than the logs of {listed(ahead)}"
        return problem("log_tails", text, f"restore the folder conversations/ {lost}")
    if missing.any:
        unknown = missing.messages
        counts = {"message": sum(unknown.values()), "turn": 0, **missing.others}
        parts = [plural(count, word) for word, count in counts.items() if count or word in ("message", "turn")]
        what = f"{', '.join(parts[:-1])} and {parts[-1]} of the logs"
        where = f" ({listed(list(unknown))})" if unknown else ""
        if running:
            return problem("log_tails", f"{what} are not in the database{where}", "restart the server")
        todo = "nothing: the next start puts them in"
        return warning("log_tails", f"{what} are not in the database yet{where}", todo)
    if report.pending_lines and not running:
        text = f"the server did not stop in order; commit.log keeps {plural(report.pending_lines, 'line')}"
        return ok("log_tails", f"{text}, which the next start compares with the logs")
    return ok("log_tails", "the database has what the logs have")
