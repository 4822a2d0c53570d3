"""What somebody means who says what is to be forgotten, and the files that tools wrote for it.

Long results that Klaw kept go always. A file that a call made, and that still is what the call wrote, goes when that
was asked for; any other stays and is named: somebody else's words may be in it. Links are not followed. Functions that
touch files block.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import attrs

from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.config.paths import USERS_FOLDER, below_of_user
from klaw.domain.fact import FactId
from klaw.domain.forget import MARK, Thing, beginning
from klaw.domain.imported import ORIGIN, ImportId
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER, ChatId, UserId, chat_id, user_of
from klaw.domain.person import PersonId, normal_name
from klaw.domain.task import Run, TaskName, run_folder, task_name
from klaw.domain.topic import TopicId
from klaw.errors import InvalidName, KlawError, NoSuchChat
from klaw.store.changes import MEMORY
from klaw.store.engine.database import Readers
from klaw.store.engine.log_files import record_of
from klaw.store.forget import quotes
from klaw.store.forget.trace import FileMade, ForgetTarget, TaskMade, effects_of
from klaw.store.kinds import chats, facts, imports, messages, pending, people, tasks, topics
from klaw.store.kinds.forgetting.turn_links import runs_of_tasks
from klaw.store.kinds.messages import CONVERSATIONS
from klaw.store.search import whereabouts
from klaw.store.search.whereabouts import Target

MAX_BYTES = 1_100_000
"""Tools write files up to 1 MB."""


def of_runs(data_dir: Path, user: UserId, runs: Sequence[Run]) -> list[FileMade]:
    """What runs wrote, by their transcripts."""
    found: list[FileMade] = []
    for run in runs:
        day = run.started_at[:10]
        path = data_dir / CONVERSATIONS / run_folder(user, task_name(run.task)) / f"{day}.jsonl"
        found += effects_of(_said(path, run.id)).files if path.is_file() else ()
    return found


def _said(path: Path, run: str) -> Iterator[tuple[str, str, str, dict[str, object]]]:
    mark = f'"run":"{run}"'.encode()
    with path.open("rb") as file:
        for record in (record_of(line) for line in file if mark in line):
            if record is not None and isinstance(record.get("metadata"), dict):
                yield str(record["role"]), str(record["type"]), str(record["content"]), record["metadata"]


def things(workspace: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> list[Thing]:
    """The files that are there, and what becomes of them."""
    found = []
    for file in files:
        data = _read(workspace, user, file.path)
        if data is None:
            continue
        whole = file.content is not None and data == file.content.encode("utf-8", "replace")
        found.append(
            Thing(
                kind="file",
                name=file.path,
                text="" if file.own else beginning(data[:4_000].decode("utf-8", "replace")),
                goes=file.own or (whole and with_facts),
                remedy="" if file.own or whole else "a tool wrote a part of it: edit it, or delete it",
            )
        )
    return found


def remove(workspace: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> None:
    """Remove those that go. Raises OSError."""
    going = {each.name for each in things(workspace, user, files, with_facts=with_facts) if each.goes}
    for file in files:
        if file.path in going:
            folder, _, name = file.path.rpartition("/")
            with safe_open.opened_folder(workspace, below_of_user(user, folder)) as parent:
                os.unlink(name, dir_fd=parent)


def _read(workspace: Path, user: UserId, path: str) -> bytes | None:
    """A file's bytes; None when no tool of the user can have written it."""
    if (
        path.startswith("/")
        or "\0" in path
        or (user == LOCAL_USER and PurePosixPath(path).parts[:1] == (USERS_FOLDER,))
    ):
        return None
    try:
        return safe_open.read(workspace, below_of_user(user, path), MAX_BYTES)
    except OSError:
        return None


class NothingToForget(KlawError):
    """What was named is not there, or cannot be forgotten. The text says why."""

    code, argument = "nothing_to_forget", "what"


async def find(
    readers: Readers, text: str, user: UserId, *, data_dir: Path, files: Threads, with_messages: bool = False
) -> ForgetTarget:
    """What somebody means: ``chat:NAME``, ``topic:12``, ``fact:ID``, ``person:ID`` or ``person:NAME``, ``task:NAME``,
    ``import:ID``, a message's id, or its chat and number (``main#12``); a name alone means a person when there is no
    such message.

    Args:
        text: what was said.
        user: whose.
        data_dir, files: where the logs are in which a removed task is looked for, and threads for it.
        with_messages: of a person, also all messages that name it.

    Raises:
        NothingToForget: there is no such thing of this user's, or it is Klaw's own line.
        NoSuchChat: the user has no such chat.
    """
    kind, colon, rest = text.partition(":")
    if colon and kind == "topic":
        return await _topic(readers, rest, user)
    if colon and kind == "chat":
        return await _chat(readers, rest, user)
    if colon and kind == "task":
        return await _task(readers, rest, user, data_dir, files)
    if colon and kind == "import":
        return await _import(readers, rest, user)
    if colon and kind == "fact":
        history = await readers.run(facts.history, user, FactId(rest))
        if not history:
            raise NothingToForget("there is no such fact")
        return ForgetTarget(user=user, facts=(FactId(rest),))
    if colon and kind == "person":
        return await _person(readers, rest, user, with_messages=with_messages)
    found = await readers.run(whereabouts.find_message, _message_target(text, user))
    if not found and "#" not in text and await _who(readers, text, user):
        return await _person(readers, text, user, with_messages=with_messages)
    if len(found) != 1:
        raise NothingToForget("there is no such message")
    if found[0].role is Role.SYSTEM:
        raise NothingToForget("this is forgotten already, or a line of Klaw's own: there is nothing of yours in it")
    return ForgetTarget(user=user, rowids=(found[0].rowid,))


async def newest(readers: Readers, chat: ChatId, count: int) -> ForgetTarget:
    """The newest messages of a chat that were said in it. Raises NothingToForget."""
    session = await readers.run(messages.session, chat)
    start = session.segment_start if session is not None else 1
    found = await readers.run(pending.newest_of_segment, chat, start, count)
    if not found:
        raise NothingToForget("there are no messages in this segment")
    return ForgetTarget(user=user_of(chat), rowids=tuple(message.rowid for message in found))


async def _topic(readers: Readers, number: str, user: UserId) -> ForgetTarget:
    topic = TopicId(int(number)) if number.isdecimal() and len(number) < 19 else TopicId(0)
    rowids = await readers.run(topics.members, user, topic)
    if not rowids:
        raise NothingToForget("there is no such topic")
    return ForgetTarget(user=user, rowids=tuple(rowids))


async def _chat(readers: Readers, name: str, user: UserId) -> ForgetTarget:
    try:
        chat = chat_id(user, name)
    except InvalidName as error:
        raise NothingToForget(f"the chat: {error}") from None
    known = await readers.run(chats.get, user, chat)
    if known is None:
        raise NoSuchChat(name)
    rowids = await readers.run(messages.kept_rowids, chat, known.last_seq)
    return ForgetTarget(user=user, rowids=tuple(rowids), deleted=((chat, known.last_seq),))


async def _task(readers: Readers, text: str, user: UserId, data_dir: Path, files: Threads) -> ForgetTarget:
    try:
        name = task_name(text)
    except InvalidName as error:
        raise NothingToForget(f"the task: {error}") from None
    present = await readers.run(tasks.get, user, name)
    asked = [present.message] if present is not None else []
    asked += await files.run(_asked_by, data_dir, user, name)
    if not asked and not await readers.run(runs_of_tasks, user, [name]):
        raise NothingToForget("there is no such task, and there was none")
    return ForgetTarget(
        user=user, tasks=tuple(TaskMade(name=name, message=each) for each in dict.fromkeys(asked or [""]))
    )


def _asked_by(data_dir: Path, user: UserId, name: TaskName) -> list[str]:
    """All that a task ever asked, as far as the memory journal still says it; it may be a removed one."""
    found: dict[str, None] = {}
    mark = f'"what":"{tasks.TASK.what}"'.encode()
    for path in sorted((data_dir / MEMORY).glob("*.jsonl")):
        with path.open("rb") as file:
            for record in (record_of(line) for line in file if mark in line):
                if record is not None and (record.get("user_id"), record.get("key")) == (user, name):
                    value = record.get("value")
                    if isinstance(value, dict) and isinstance(value.get("message"), str):
                        found[value["message"]] = None
    found.pop(MARK, None)
    return list(found)


async def _import(readers: Readers, number: str, user: UserId) -> ForgetTarget:
    origin = ImportId(number)
    found = await readers.run(imports.brought, user, origin)
    if not (found.rowids or found.facts or found.people):
        raise NothingToForget("there is no such import: klaw import list shows them")
    return ForgetTarget(
        user=user,
        rowids=found.rowids,
        facts=found.facts,
        people=found.people,
        deleted=tuple(await readers.run(imports.whole_chats, user, origin)),
        channel=f"{ORIGIN}{origin}",
    )


async def _who(readers: Readers, text: str, user: UserId) -> list[PersonId]:
    """The people of this id or this name, and the person who each of them turned out to be."""
    past = await readers.run(people.history, user, PersonId(text))
    named = await readers.run(people.by_names, user, [text]) if normal_name(text) else []
    ids = [PersonId(text)] if past else [each.id for each in named]
    found = [(await readers.run(people.resolve, user, each), each) for each in ids]
    return [now.id if now is not None else each for now, each in found]


async def _person(readers: Readers, text: str, user: UserId, *, with_messages: bool) -> ForgetTarget:
    who = await _who(readers, text, user)
    if len(who) > 1:
        raise NothingToForget(f"several people have this name: {', '.join(f'person:{each}' for each in who)}")
    named = await readers.run(quotes.look_for_person, user, who[0]) if who else None
    if named is None:
        raise NothingToForget("there is no such person")
    if not named.names:
        raise NothingToForget("this person is forgotten already")
    rowids: tuple[int, ...] = ()
    if with_messages:
        rowids, losing = named.messages, ("receipts", "runs", "titles")
        others = {kind: number for kind, number in named.others.items() if kind not in losing}
        named = attrs.evolve(named, others=others)
    return ForgetTarget(
        user=user,
        rowids=rowids,
        facts=tuple(named.facts),
        people=named.people,
        named=named,
        with_messages=with_messages,
    )


def _message_target(text: str, user: UserId) -> Target:
    named, mark, number = text.rpartition("#")
    if not mark:
        return Target(id=text, user=user)
    if not number.isdecimal() or len(number) > 18:
        raise NothingToForget("after # stands the number of a message: 1, 2, 3 …")
    try:
        chat = chat_id(user, named.removeprefix(f"{user}:"))
    except InvalidName as error:
        raise NothingToForget(f"the chat: {error}") from None
    return Target(seq=int(number), chat=chat)
