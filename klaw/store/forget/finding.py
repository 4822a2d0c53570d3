"""What somebody means who says what is to be forgotten, and the files that tools wrote for it. All functions block.

Long results that Klaw kept go always. A file that a call made, and that still is what the call wrote, goes when that
was asked for; any other stays and is named: somebody else's words may be in it. Links are not followed.
"""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import apsw
import attrs

from klaw.config import safe_open
from klaw.config.paths import USERS_FOLDER, below_of_user
from klaw.domain.fact import FactId
from klaw.domain.forget import MARK, Thing, beginning
from klaw.domain.imported import ORIGIN, ImportId
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER, ChatId, UserId, chat_id, user_of
from klaw.domain.person import PersonId, normal_name
from klaw.domain.task import Run, task_name
from klaw.domain.topic import TopicId
from klaw.errors import InvalidName, KlawError, NoSuchChat
from klaw.store.engine.log_files import record_of
from klaw.store.forget import quotes
from klaw.store.forget.effects import FileMade, TaskMade, effects_of
from klaw.store.forget.reach import ForgetTarget
from klaw.store.kinds import chats, facts, imports, messages, pending, people, tasks, topics
from klaw.store.kinds.forgotten import runs_of_tasks
from klaw.store.kinds.runs import transcript_path
from klaw.store.kinds.variants.branches import same_place
from klaw.store.search import whereabouts
from klaw.store.search.whereabouts import Target

MAX_BYTES = 1_100_000
"""Tools write files up to 1 MB."""


class NothingToForget(KlawError):
    """What was named is not there, or cannot be forgotten. The text says why."""

    code, argument = "nothing_to_forget", "what"


def find(connection: apsw.Connection, text: str, user: UserId, *, with_messages: bool = False) -> ForgetTarget:
    """What somebody means: ``chat:NAME``, ``topic:12``, ``fact:ID``, ``person:ID`` or ``person:NAME``, ``task:NAME``,
    ``import:ID``, a message's id, or its chat and number (``main#12``); a name alone means a person when there is no
    such message. ``with_messages``: of a person also all messages that name it. Raises NothingToForget: there is no
    such thing of this user's, or it is Klaw's own line; NoSuchChat."""
    kind, colon, rest = text.partition(":")
    try:
        wanted = _NAMED[kind](connection, rest, user) if colon and kind in _NAMED else _message(connection, text, user)
    except InvalidName as error:
        raise NothingToForget(str(error)) from None
    if wanted.named is None or not with_messages:
        return wanted
    return attrs.evolve(wanted, rowids=wanted.named.messages, named=attrs.evolve(wanted.named, with_messages=True))


def _message(connection: apsw.Connection, text: str, user: UserId) -> ForgetTarget:
    found = whereabouts.find_message(connection, _message_target(text, user))
    if not found and "#" not in text and _who(connection, text, user):
        return _person(connection, text, user)
    if len(found) != 1:
        raise NothingToForget("there is no such message")
    (said,) = messages.whole(connection, [found[0].rowid])
    if said.role is Role.SYSTEM:
        raise NothingToForget("this is forgotten already, or a line of Klaw's own: there is nothing of yours in it")
    return ForgetTarget(user=user, rowids=tuple(same_place(connection, said)))


def newest(connection: apsw.Connection, chat: ChatId, count: int) -> ForgetTarget:
    """The newest messages of a chat that were said in it. Raises NothingToForget."""
    session = messages.session(connection, chat)
    start = session.segment_start if session is not None else 1
    found = pending.newest_of_segment(connection, chat, start, count)
    if not found:
        raise NothingToForget("there are no messages in this segment")
    return ForgetTarget(user=user_of(chat), rowids=tuple(message.rowid for message in found))


def _fact(connection: apsw.Connection, fact: str, user: UserId) -> ForgetTarget:
    if not facts.history(connection, user, fact):
        raise NothingToForget("there is no such fact")
    return ForgetTarget(user=user, facts=(FactId(fact),))


def _topic(connection: apsw.Connection, number: str, user: UserId) -> ForgetTarget:
    topic = TopicId(int(number)) if number.isdecimal() and len(number) < 19 else TopicId(0)
    rowids = topics.members(connection, user, topic)
    if not rowids:
        raise NothingToForget("there is no such topic")
    return ForgetTarget(user=user, rowids=tuple(rowids))


def _chat(connection: apsw.Connection, name: str, user: UserId) -> ForgetTarget:
    chat = chat_id(user, name)
    known = chats.get(connection, user, chat)
    if known is None:
        raise NoSuchChat(name)
    return whole_chat(connection, user, chat, known.last_seq)


def whole_chat(connection: apsw.Connection, user: UserId, chat: ChatId, last_seq: int) -> ForgetTarget:
    """A user's chat, with what was said in it up to a number."""
    rowids = messages.kept_rowids(connection, chat, last_seq)
    return ForgetTarget(user=user, rowids=tuple(rowids), deleted=((chat, last_seq),))


def _task(connection: apsw.Connection, text: str, user: UserId) -> ForgetTarget:
    name = task_name(text)
    past = [change.value for change in tasks.history(connection, user, name)[::-1]]
    known = [each.message for each in (tasks.get(connection, user, name), *past) if each is not None]
    asked = [each for each in dict.fromkeys(known) if each != MARK]
    if not asked and not runs_of_tasks(connection, user, [name]):
        raise NothingToForget("there is no such task, and there was none")
    return ForgetTarget(user=user, tasks=tuple(TaskMade(name=name, message=each) for each in asked or [""]))


def _import(connection: apsw.Connection, number: str, user: UserId) -> ForgetTarget:
    origin = ImportId(number)
    found = imports.brought(connection, user, origin)
    if not (found.rowids or found.facts or found.people):
        raise NothingToForget("there is no such import: klaw import list shows them")
    return ForgetTarget(
        user=user,
        rowids=found.rowids,
        facts=found.facts,
        people=found.people,
        deleted=tuple(imports.whole_chats(connection, user, origin)),
        channel=f"{ORIGIN}{origin}",
    )


def _who(connection: apsw.Connection, text: str, user: UserId) -> list[PersonId]:
    """The people of this id or this name, and the person who each of them turned out to be."""
    ids = [PersonId(text)]
    if not people.history(connection, user, text):
        ids = [each.id for each in people.by_names(connection, user, [text])] if normal_name(text) else []
    found = [(people.resolve(connection, user, each), each) for each in ids]
    return [now.id if now is not None else each for now, each in found]


def _person(connection: apsw.Connection, text: str, user: UserId) -> ForgetTarget:
    who = _who(connection, text, user)
    if len(who) > 1:
        raise NothingToForget(f"several people have this name: {', '.join(f'person:{each}' for each in who)}")
    named = quotes.look_for_person(connection, user, who[0]) if who else None
    if named is None:
        raise NothingToForget("there is no such person")
    if not named.names:
        raise NothingToForget("this person is forgotten already")
    return ForgetTarget(user=user, facts=named.keys(facts.FACT), people=named.people, named=named)


_NAMED = {"topic": _topic, "chat": _chat, "task": _task, "import": _import, "fact": _fact, "person": _person}


def _message_target(text: str, user: UserId) -> Target:
    named, mark, number = text.rpartition("#")
    if not mark:
        return Target(id=text, user=user)
    if not number.isdecimal() or len(number) > 18:
        raise NothingToForget("after # stands the number of a message: 1, 2, 3 …")
    return Target(seq=int(number), chat=chat_id(user, named.removeprefix(f"{user}:")))


# -- files of the workspace --------------------------------------------------------------------------------------------


def of_runs(data_dir: Path, runs: Sequence[Run]) -> list[FileMade]:
    found: list[FileMade] = []
    for run in runs:
        path, mark = data_dir / transcript_path(run), f'"run":"{run.id}"'.encode()
        if path.is_file():
            with path.open("rb") as file:
                rows = [record_of(line) or {} for line in file if mark in line]
            said = (row for row in rows if isinstance(row.get("metadata"), dict))
            found += effects_of((row["role"], row["type"], row["content"], row["metadata"]) for row in said).files
    return found


def things(workspace: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> list[Thing]:
    found = []
    for file in files:
        data = _read(workspace, user, file.path)
        if data is not None:
            whole = file.content is not None and data == file.content.encode("utf-8", "replace")
            text = "" if file.own else beginning(data[:4_000].decode("utf-8", "replace"))
            remedy = "" if file.own or whole else "a tool wrote a part of it: edit it, or delete it"
            goes = file.own or (whole and with_facts)
            found.append(Thing(kind="file", name=file.path, text=text, goes=goes, remedy=remedy))
    return found


def remove(workspace: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> None:
    """Remove those that go. Raises OSError."""
    for path in {each.name for each in things(workspace, user, files, with_facts=with_facts) if each.goes}:
        folder, _, name = path.rpartition("/")
        with safe_open.opened_folder(workspace, below_of_user(user, folder)) as parent:
            os.unlink(name, dir_fd=parent)


def _read(workspace: Path, user: UserId, path: str) -> bytes | None:
    """A file's bytes; None when no tool of the user can have written it."""
    others = user == LOCAL_USER and PurePosixPath(path).parts[:1] == (USERS_FOLDER,)
    if path.startswith("/") or "\0" in path or others:
        return None
    try:
        return safe_open.read(workspace, below_of_user(user, path), MAX_BYTES)
    except OSError:
        return None
