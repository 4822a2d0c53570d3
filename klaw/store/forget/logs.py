"""Forgetting in the files: where a text stands, and the logs without it.

The logs are cleaned in two rounds, so that a kill at any point leaves what the next start needs: first what quotes the
forgotten texts, copies of summaries too, then the texts' own lines. All functions block; those that write run in the
writer's thread.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
import attrs
import structlog

from klaw.config import safe_open
from klaw.config.paths import USERS_FOLDER, encode_name
from klaw.domain.forget import Quotes
from klaw.domain.names import LOCAL_USER, UserId
from klaw.store import attachments, changes, originals
from klaw.store.engine import connect, meta, set_aside
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_files import record_of
from klaw.store.engine.log_rewrite import DRAFT
from klaw.store.forget import applying
from klaw.store.forget.cleaner import Cleaner, needles
from klaw.store.forget.entry import ForgetEntry
from klaw.store.kinds import messages, runs, turns
from klaw.store.kinds.core_memory import FILE as CORE_FILE
from klaw.store.kinds.summaries import COPIES, copy_path

T = TypeVar("T")

LOGS = (messages.CONVERSATIONS, turns.TURNS, runs.RUNS, changes.MEMORY)
"""In the order in which they are cleaned: that of memory knows a person's names, for which the others are cleaned."""

_ASIDE = (".bak", ".old", ".bad", ".damaged", "~", ".gz", ".zip", ".tar", ".sqlite", ".db")
MOST_SEARCHED = 16
"""Pieces, the longest, whose bytes are looked for in files of any kind."""
CHUNK_BYTES = 1 << 20
MOST_BUSY_MS = 500
"""Readers of this process are through sooner; everybody waits meanwhile."""
MOST_BYTES = 1 << 30
"""A larger file that is none of Klaw's own is named instead of searched: a program can make one of any size."""

log = structlog.get_logger("klaw.forget")


# -- searching ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Held:
    """A file that holds a text."""

    path: str
    """Relative to the folder that was searched."""
    count: int
    """Lines of a log, occurrences in any other file."""
    kind: str = "file"
    """``log``, ``database``, ``backup``, ``copy`` (of a summary), ``core memory``, ``attachment``, ``source``, ``file``
    or ``not searched``."""

    @property
    def remedy(self) -> str:
        """What to do about it."""
        if self.path == "klaw.db.old":
            return "klaw reindex --drop-old removes it"
        return _REMEDIES[self.kind]


_REMEDIES = {
    "log": "a line of what is kept, or of what was said again",
    "database": "a row of what is kept, of what was said again, or of another user",
    "backup": "delete it when it is not needed; forget again after restoring it",
    "copy": "the summary is made of other messages that say it",
    "core memory": "edit it",
    "attachment": "forget the message that has it",
    "source": "another source of a knowledge base holds it: klaw kb remove",
    "file": "edit it, or delete it",
    "not searched": "it has more than 1 GB: look into it",
}


def aside(root: Path) -> list[Held]:
    """Files beside the data that hold what was, also in forms that no search for bytes finds: databases of before,
    backups, what was damaged."""
    found = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not path.is_symlink() and _kind(name) == "backup":
            found.append(Held(path=name, count=0, kind="backup"))
    return found


def search(
    root: Path, user: UserId, pieces: Sequence[str], *, skip: Collection[Path] = (), shared: bool = False
) -> list[Held]:
    """Every file below a folder that holds one of the pieces; of logs only the user's lines count. Other users' own
    files are left out; the database's bytes are everybody's.

    Args:
        user: whose texts they are.
        pieces: the texts.
        skip: folders that are left out.
        shared: a folder whose files are the user ``local``'s, but for those in ``users``.
    """
    wanted = needles(pieces[:MOST_SEARCHED])
    found = []
    for path in sorted(root.rglob("*")) if wanted else []:
        name = path.relative_to(root).as_posix()
        if not path.is_file() or path.is_symlink() or any(path.is_relative_to(each) for each in skip):
            continue
        if path.parent == root and name.startswith("klaw.db") and name.endswith("-shm"):
            continue  # numbers of pages, under locks that whoever closes the file takes from SQLite
        kind = "file" if shared else _kind(name)
        if not _may_be_of(name, user, shared=shared):
            continue
        try:
            large = kind == "file" and path.lstat().st_size > MOST_BYTES
            count = 0 if large else _count(root, name, user, wanted)
        except OSError:  # it is gone, or a link, or may not be read
            continue
        if large or count:
            found.append(Held(path=name, count=count, kind="not searched" if large else kind))
    return found


def _may_be_of(name: str, user: UserId, *, shared: bool) -> bool:
    top, _, rest = name.partition("/")
    if top == USERS_FOLDER:
        return rest.startswith(f"{encode_name(user)}/")
    if top == COPIES:
        return rest.startswith(encode_name(f"{user}:"))
    if top == attachments.FOLDER and not shared:
        return user == LOCAL_USER
    return user == LOCAL_USER or not (shared or name == CORE_FILE)


def _kind(name: str) -> str:
    top = name.split("/", 1)[0]
    if is_log(name) or name == COMMIT_LOG:
        return "log"
    if name in ("klaw.db", "klaw.db-wal", "klaw.db-shm"):
        return "database"
    if name.endswith(CORE_FILE):
        return "core memory"
    if top == COPIES:
        return "copy"
    if top == set_aside.FOLDER:
        return "backup"
    if Path(name).parent.name == attachments.FOLDER:
        return "attachment"
    if top == originals.FOLDER:
        return "source"
    return "backup" if name.startswith("klaw.db") or name.endswith(_ASIDE) else "file"


def _count(root: Path, name: str, user: str, wanted: Sequence[bytes]) -> int:
    if name.startswith("klaw.db") and not name.endswith("-wal"):
        return _most(connect.chunks(root / name, CHUNK_BYTES), wanted)
    # Read, not mapped: whoever makes a mapped file shorter ends the process.
    with safe_open.opened(root, name) as found, os.fdopen(found.fd, "rb", closefd=False) as file:
        if is_log(name):
            return sum(any(each in line for each in wanted) and _is_of(line, user) for line in file)
        return _most(iter(partial(file.read, CHUNK_BYTES), b""), wanted)


def _most(chunks: Iterable[bytes], wanted: Sequence[bytes]) -> int:
    """How often that stands in a file which stands in it most often."""
    counts, ends = [0] * len(wanted), [b""] * len(wanted)
    for chunk in chunks:
        for at, each in enumerate(wanted):
            data = ends[at] + chunk
            counts[at] += data.count(each)
            ends[at] = data[1 - len(each) :] if len(each) > 1 else b""
    return max(counts, default=0)


def is_log(name: str) -> bool:
    """Whether a file of the data folder is a log of records."""
    return name.endswith(".jsonl") and name.split("/", 1)[0] in LOGS


def _is_of(line: bytes, user: str) -> bool:
    record = record_of(line)
    return record is None or record.get("user_id") == user


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
    """Clean all logs by one round. Returns how many lines changed. In the writer's thread."""
    journal.checkpoint()
    return sum(journal.rewrite(path, cleaner.line_of(path)) for path in logs_with(root, cleaner))


def remove_drafts(root: Path) -> None:
    """Remove what a kill left of rewritten logs: it may say what was to go. Raises OSError."""
    for folder in LOGS:
        for path in (root / folder).rglob(DRAFT.format("*.jsonl")):
            path.unlink(missing_ok=True)


def remove_copies(root: Path, entry: ForgetEntry, pieces: Sequence[str]) -> None:
    """Remove the Markdown copies of summaries that are gone or quote a piece; what is still there is copied again."""
    for chat, number in entry.summaries:
        (root / copy_path(chat, number)).unlink(missing_ok=True)
    quotes = Quotes.of(pieces)
    folders = (root / COPIES).iterdir() if quotes and (root / COPIES).is_dir() else ()
    for folder in folders:
        if folder.name.startswith(encode_name(f"{entry.user}:")) and folder.is_dir() and not folder.is_symlink():
            for path in folder.iterdir():
                if path.is_file() and quotes.found_in(path.read_text("utf-8", "replace")):
                    path.unlink(missing_ok=True)


def compact(connection: apsw.Connection, *, vacuum: bool) -> bool:
    """Bring all that was written into the database file and empty the write-ahead log; ``vacuum``: rebuild the file,
    so that no page holds what was once there. Returns whether the log was emptied: not while another process, such as a
    backup, reads an older state; then it is still owed."""
    applying.merge_small_indexes(connection)
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
