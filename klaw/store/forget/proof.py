"""The proof of a forgetting: what goes and what stays, in words, and which files hold a text, by a search for its
bytes."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import attrs

from klaw.config import safe_open
from klaw.config.paths import USERS_FOLDER, encode_name
from klaw.domain.attachment import files_of
from klaw.domain.core_memory import Document
from klaw.domain.forget import Thing, beginning
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import LOCAL_USER, ChatId, UserId, name_of
from klaw.domain.task import run_folder
from klaw.errors import CoreUnreadable
from klaw.store import attachments, originals
from klaw.store.engine import connect, set_aside
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.engine.log_files import record_of
from klaw.store.forget.logs import is_log, needles
from klaw.store.forget.reach import Reach
from klaw.store.kinds import chats, forgotten, messages, runs, topics
from klaw.store.kinds.core_memory import FILE as CORE_FILE
from klaw.store.kinds.core_memory import read_core
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.summaries import COPIES, SUMMARY, summary_key

_ASIDE = (".bak", ".old", ".bad", ".damaged", "~", ".gz", ".zip", ".tar", ".sqlite", ".db")
MOST_SEARCHED = 16
"""Pieces, the longest, whose bytes are looked for in files of any kind."""
CHUNK_BYTES = 1 << 20
MOST_BYTES = 1 << 30
"""A larger file that Klaw did not write is reported instead of searched: a program can make one of any size."""


@attrs.frozen(kw_only=True)
class HoldingFile:
    path: str
    """Relative to the folder that was searched."""
    count: int
    """Lines of a log, occurrences in any other file."""
    kind: str = "file"
    """``log``, ``database``, ``backup``, ``copy`` (of a summary), ``core memory``, ``attachment``, ``source``, ``file``
    or ``not searched``."""

    @property
    def remedy(self) -> str:
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


def aside(root: Path) -> list[HoldingFile]:
    """Files beside the data that hold what was, also in forms that no search for bytes finds: databases of before,
    backups, what was damaged."""
    return [HoldingFile(path=name, count=0, kind="backup") for _, name in _files(root) if _kind(name) == "backup"]


def _files(root: Path, skip: Collection[Path] = ()) -> Iterator[tuple[Path, str]]:
    # os.walk goes on when a folder is removed meanwhile; rglob raises.
    for path in sorted(Path(parent, name) for parent, _, names in os.walk(root) for name in names):
        if path.is_file() and not path.is_symlink() and not any(path.is_relative_to(each) for each in skip):
            yield path, path.relative_to(root).as_posix()


def search(
    root: Path, user: UserId, pieces: Sequence[str], *, skip: Collection[Path] = (), shared: bool = False
) -> list[HoldingFile]:
    """Every file below a folder, but for those that are skipped, that holds one of the pieces; of logs only the user's
    lines count. Other users' own files are left out (of a ``shared`` folder those in ``users``; the others are the user
    ``local``'s); the database's bytes are everybody's."""
    wanted = needles(pieces[:MOST_SEARCHED])
    found = []
    for path, name in _files(root, skip) if wanted else ():
        # A -shm has page numbers only, and closing the file would release the locks that SQLite holds on it.
        if (name.startswith("klaw.db") and name.endswith("-shm")) or not _may_be_of(name, user, shared=shared):
            continue
        kind = "file" if shared else _kind(name)
        try:
            large = kind == "file" and path.lstat().st_size > MOST_BYTES
            count = 0 if large else _count(root, name, user, wanted)
        except OSError:  # it is gone, or a link, or may not be read
            continue
        if large or count:
            found.append(HoldingFile(path=name, count=count, kind="not searched" if large else kind))
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


_OF_FOLDER = {COPIES: "copy", set_aside.FOLDER: "backup", originals.FOLDER: "source"}


def _kind(name: str) -> str:
    top = name.split("/", 1)[0]
    if is_log(name) or name == COMMIT_LOG:
        return "log"
    if name in ("klaw.db", "klaw.db-wal", "klaw.db-shm"):
        return "database"
    if name.endswith(CORE_FILE):
        return "core memory"
    if top in _OF_FOLDER:
        return _OF_FOLDER[top]
    if Path(name).parent.name == attachments.FOLDER:
        return "attachment"
    return "backup" if name.startswith("klaw.db") or name.endswith(_ASIDE) else "file"


def _count(root: Path, name: str, user: str, wanted: Sequence[bytes]) -> int:
    if name.startswith("klaw.db") and not name.endswith("-wal"):
        return _most(connect.chunks(root / name, CHUNK_BYTES), wanted)
    # Read, not mapped: truncating a mapped file would kill the process.
    with safe_open.opened(root, name) as found, os.fdopen(found.fd, "rb", closefd=False) as file:
        if is_log(name):
            return sum(any(each in line for each in wanted) and _is_of(line, user) for line in file)
        return _most(iter(partial(file.read, CHUNK_BYTES), b""), wanted)


def _most(chunks: Iterable[bytes], wanted: Sequence[bytes]) -> int:
    """How often a file holds the text that it holds most often."""
    counts, ends = [0] * len(wanted), [b""] * len(wanted)
    for chunk in chunks:
        for at, each in enumerate(wanted):
            data = ends[at] + chunk
            counts[at] += data.count(each)
            ends[at] = data[1 - len(each) :] if len(each) > 1 else b""
    return max(counts, default=0)


def _is_of(line: bytes, user: str) -> bool:
    record = record_of(line)
    return record is None or record.get("user_id") == user


# -- in words ---------------------------------------------------------------------------------------------------------


def things_of(connection: apsw.Connection, reach: Reach) -> list[Thing]:
    """Everything but files of the workspace, in the order in which one was made of another."""
    user, shown = reach.user, frozenset(reach.shown)
    found = [_chat(connection, user, chat) for chat, _ in reach.wanted.deleted]
    found += [Thing(kind="task", name=each.name, text=beginning(each.message)) for each in reach.wanted.tasks]
    found += [_message(each) for each in reach.own if each.rowid not in shown]
    found += _attachments(reach)
    for run in runs.by_ids(connection, user, reach.runs):
        found.append(Thing(kind="run", name=f"{run.id} of {run.task}", text=beginning(run.message)))
    found += _on_purpose(connection, user, reach.gone, goes=True)
    for each in reach.topics:
        topic = topics.get(connection, user, each)
        if topic is not None:
            left = "made again from what is left"
            found.append(Thing(kind="topic", name=str(each), text=beginning(topic.summary), remedy=left))
    for chat, number in reach.keys(SUMMARY):
        text = "".join(SUMMARY.texts(connection, user, summary_key((chat, number))))
        found.append(Thing(kind="summary", name=f"{name_of(chat)} {number}", text=beginning(text)))
    for task in reach.tasks:
        if task not in reach.wanted.tasks:
            found.append(Thing(kind="task", name=task.name, text=beginning(task.message), goes=reach.with_facts))
    found += _core(connection, reach)
    found += _on_purpose(connection, user, reach.kept, goes=False)
    for program in reach.effects.programs:
        remedy = "what a program or another server did stays: look there"
        found.append(Thing(kind="program", name=program, goes=False, remedy=remedy))
    return found


def names_left(reach: Reach) -> list[dict[str, str]]:
    """Names that stay when all is gone that they named, and the folders that have them."""
    left = [("chat", name_of(chat), messages.chat_folder(chat)) for chat, _ in reach.wanted.deleted]
    tasks = sorted(reach.going_tasks)
    left += [("task", name, f"{messages.CONVERSATIONS}/{run_folder(reach.user, name)}") for name in tasks]
    return [{"kind": kind, "name": name, "folder": folder} for kind, name, folder in left]


def _chat(connection: apsw.Connection, user: UserId, chat: ChatId) -> Thing:
    known = chats.get(connection, user, chat)
    return Thing(kind="chat", name=name_of(chat), text=beginning(known.title if known is not None else ""))


def _message(message: Message) -> Thing:
    kind, text = "message", message.content
    if message.type is MessageKind.TOOL_CALL:
        kind = "tool call"
        calls = (f"{call['name']} {call['arguments']}" for call in forgotten.calls(message.metadata))
        text = "; ".join(filter(None, (text, *calls)))
    elif message.type is MessageKind.TOOL_RESULT:
        kind = "tool result"
    elif message.role is Role.ASSISTANT:
        kind = "answer"
    at = message.created_at[:16].replace("T", " ")
    return Thing(
        kind=kind, name=f"{name_of(message.chat)}#{message.seq}  {message.role.value}  {at}Z", text=beginning(text)
    )


def _attachments(reach: Reach) -> Iterator[Thing]:
    going = {each.sha256 for each in reach.attachments}
    for file in (file for message in reach.own for file in files_of(message.metadata)):
        goes = file.sha256 in going
        remedy = "" if goes else "another message has it too"
        text = beginning(f"{file.name}  {file.type}, {file.bytes:,} bytes")
        yield Thing(kind="attachment", name=file.sha256[:12], text=text, goes=goes, remedy=remedy)


def _on_purpose(
    connection: apsw.Connection, user: UserId, found: Mapping[str, Sequence[Any]], *, goes: bool
) -> Iterator[Thing]:
    for kind in (kind for kind in KINDS if kind.on_purpose):
        for key in found.get(kind.what, ()):
            states = kind.history(connection, user, key) if kind.past else []
            past = [change.value for change in states if change.value is not None]
            fields = kind.fields(past[-1]) if past else {}
            words = [str(fields[name]) for name in kind.quotes if isinstance(fields.get(name), str)]
            text = "  ".join(filter(None, words or kind.texts(connection, user, key)))
            active = kind.is_there(connection, user, key) and (not past or getattr(past[-1], "active", True))
            yield Thing(
                kind=kind.what if active else f"former {kind.what}", name=str(key), text=beginning(text), goes=goes
            )


def _core(connection: apsw.Connection, reach: Reach) -> Iterator[Thing]:
    made = reach.effects.core
    try:
        document: Document = read_core(connection, reach.user) if made else {}
    except CoreUnreadable:
        remedy = "core_memory.json cannot be read: correct it, and look for it there"
        yield Thing(kind="core memory", name="core_memory.json", goes=False, remedy=remedy)
        return
    there = {f"{each.section}, {each.key}": each.value for each in made if each.is_in(document)}
    for name, value in there.items():
        yield Thing(kind="core memory", name=name, text=beginning(value), goes=reach.with_facts)
