"""What is to be forgotten in words: so that somebody sees it before it goes. Every question names the user."""

from collections.abc import Iterator, Sequence

import apsw

from klaw.domain.attachment import files_of
from klaw.domain.core_memory import Document
from klaw.domain.fact import FactId
from klaw.domain.forget import Thing, beginning
from klaw.domain.message import Kind, Message, Role
from klaw.domain.names import ChatId, UserId, name_of
from klaw.domain.person import PersonId
from klaw.domain.task import run_folder
from klaw.domain.topic import TopicId
from klaw.errors import CoreUnreadable
from klaw.store.forget import derived as derivation
from klaw.store.forget.scope import Scope, fact_texts
from klaw.store.kinds import chats, facts, messages, people, runs, topics
from klaw.store.kinds.core_memory import read_core

_SUMMARY = "SELECT text FROM summaries WHERE user_id = ? AND chat_id = ? AND number = ?"


def things_of(connection: apsw.Connection, scope: Scope) -> list[Thing]:
    """Everything but files of the workspace, in the order in which one was made of another."""
    shown = frozenset(scope.shown)
    found = [_chat(connection, scope.user, chat) for chat, _ in scope.deleted]
    found += [Thing(kind="task", name=each.name, text=beginning(each.message)) for each in scope.asked_tasks]
    found += [_message(each) for each in scope.own if each.rowid not in shown]
    found += _attachments(scope)
    found += _runs(connection, scope)
    found += _facts(connection, scope.user, scope.facts, goes=True)
    found += _people(connection, scope.user, scope.people, goes=True)
    found += _topics(connection, scope.user, scope.topics)
    found += _summaries(connection, scope.user, scope.summaries)
    found += _tasks(scope)
    found += _core(connection, scope)
    found += _facts(connection, scope.user, scope.kept_facts, goes=False)
    found += _people(connection, scope.user, scope.kept_people, goes=False)
    for program in scope.programs:
        remedy = "what a program or another server did stays: look there"
        found.append(Thing(kind="program", name=program, goes=False, remedy=remedy))
    return found


def names_left(scope: Scope) -> list[dict[str, str]]:
    """Names that stay when all is gone that they named, and the folders that have them."""
    chats_left = [("chat", name_of(chat), messages.chat_folder(chat)) for chat, _ in scope.deleted]
    going = {each.name for each in (*scope.asked_tasks, *(scope.tasks if scope.with_facts else ()))}
    tasks_left = [("task", name, f"{messages.CONVERSATIONS}/{run_folder(scope.user, name)}") for name in sorted(going)]
    return [{"kind": kind, "name": name, "folder": folder} for kind, name, folder in (*chats_left, *tasks_left)]


def _chat(connection: apsw.Connection, user: UserId, chat: ChatId) -> Thing:
    known = chats.get(connection, user, chat)
    return Thing(kind="chat", name=name_of(chat), text=beginning(known.title if known is not None else ""))


def _message(message: Message) -> Thing:
    kind, text = "message", message.content
    if message.type is Kind.TOOL_CALL:
        kind = "tool call"
        calls = (f"{name} {arguments}" for name, arguments in derivation.calls_of(message))
        text = "; ".join(filter(None, (text, *calls)))
    elif message.type is Kind.TOOL_RESULT:
        kind = "tool result"
    elif message.role is Role.ASSISTANT:
        kind = "answer"
    at = message.created_at[:16].replace("T", " ")
    return Thing(
        kind=kind, name=f"{name_of(message.chat)}#{message.seq}  {message.role.value}  {at}Z", text=beginning(text)
    )


def _attachments(scope: Scope) -> Iterator[Thing]:
    going = {each.sha256 for each in scope.attachments}
    for file in (file for message in scope.own for file in files_of(message.metadata)):
        goes = file.sha256 in going
        remedy = "" if goes else "another message has it too"
        text = beginning(f"{file.name}  {file.type}, {file.bytes:,} bytes")
        yield Thing(kind="attachment", name=file.sha256[:12], text=text, goes=goes, remedy=remedy)


def _runs(connection: apsw.Connection, scope: Scope) -> Iterator[Thing]:
    for run in runs.by_ids(connection, scope.user, scope.runs):
        yield Thing(kind="run", name=f"{run.id} of {run.task}", text=beginning(run.message))


def _facts(connection: apsw.Connection, user: UserId, ids: Sequence[FactId], *, goes: bool) -> Iterator[Thing]:
    for fact in ids:
        now = facts.get(connection, user, fact)
        texts = [now.text] if now is not None else fact_texts(connection, user, fact)[-1:]
        kind = "fact" if now is not None and now.active else "former fact"
        yield Thing(kind=kind, name=fact, text=beginning("".join(texts)), goes=goes)


def _people(connection: apsw.Connection, user: UserId, ids: Sequence[PersonId], *, goes: bool) -> Iterator[Thing]:
    for each in ids:
        known = [past.value for past in people.history(connection, user, each) if past.value is not None]
        words = [known[-1].name, known[-1].relation] if known else []
        yield Thing(kind="person", name=each, text=beginning("  ".join(filter(None, words))), goes=goes)


def _topics(connection: apsw.Connection, user: UserId, ids: Sequence[TopicId]) -> Iterator[Thing]:
    for each in ids:
        topic = topics.get(connection, user, each)
        if topic is not None:
            left = "made again from what is left"
            yield Thing(kind="topic", name=str(each), text=beginning(topic.summary), remedy=left)


def _summaries(connection: apsw.Connection, user: UserId, ids: Sequence[tuple[ChatId, int]]) -> Iterator[Thing]:
    for chat, number in ids:
        text = connection.execute(_SUMMARY, (user, chat, number)).get
        yield Thing(kind="summary", name=f"{name_of(chat)} {number}", text=beginning(str(text or "")))


def _tasks(scope: Scope) -> Iterator[Thing]:
    for task in scope.tasks:
        if task in scope.asked_tasks:
            continue
        yield Thing(kind="task", name=task.name, text=beginning(task.message), goes=scope.with_facts)


def _core(connection: apsw.Connection, scope: Scope) -> Iterator[Thing]:
    try:
        document: Document = read_core(connection, scope.user) if scope.core else {}
    except CoreUnreadable:
        remedy = "core_memory.json cannot be read: correct it, and look for it there"
        yield Thing(kind="core memory", name="core_memory.json", goes=False, remedy=remedy)
        return
    there = {(made.section, made.key): made.value for made in scope.core if made.is_in(document)}
    for (section, key), value in there.items():
        yield Thing(kind="core memory", name=f"{section}, {key}", text=beginning(value), goes=scope.with_facts)
