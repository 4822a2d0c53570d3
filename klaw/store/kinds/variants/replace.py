"""Replacing messages of a chat by variants, and going from one variant to another. Functions for the writer."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import attrs

from klaw.config.schema import AttachmentsConfig
from klaw.domain.attachment import FILES, NamedFile
from klaw.domain.branch import Branch, BranchTree, Fork, parting
from klaw.domain.fact import FactId
from klaw.domain.forget import FORGOTTEN, MARK
from klaw.domain.imported import ORIGIN
from klaw.domain.message import Message, MessageKind, NewMessage, Role, TurnStatus
from klaw.domain.names import ChatId, UserId, name_of
from klaw.errors import CannotReplace, NoSuchChat
from klaw.store.changes import Kind
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import attachments, facts, messages, summaries, turns
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.messages import MESSAGES, NOW, AppendedMessage
from klaw.store.kinds.people import PERSON
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.summaries import copy_path
from klaw.store.kinds.variants.branches import BRANCH, BranchChange, HiddenThing, hidden, tree_of


def edit(
    tx: Transaction,
    new: NewMessage,
    which: int | str | None,
    files: Sequence[NamedFile] | None,
    limits: AttachmentsConfig,
    most_bytes: int,
) -> AppendedMessage:
    """Store a message in the place of one of its user, which is replaced with all that followed it.

    Args:
        which: the number of the message that is replaced, or its id; None: the last one.
        files: of the new message; None: those of the old one.

    Raises:
        CannotReplace: it is not there, not the user's own, or replaced already.
        IdConflict, TooMuchToday, AttachmentRefused: as for any message; nothing was changed.
    """
    if messages.find(tx.connection, new.user, new.id) is not None:
        return messages.append_one(tx, new)  # asked for again
    old = _question(tx.connection, new.chat, None) if which is None else _active(tx.connection, new.chat, which)
    if old is None or old.role is not Role.USER or old.type is not MessageKind.TEXT:
        raise CannotReplace("there is no such message of yours in what this chat shows; load the chat again")
    _go_on(tx, new.user, new.chat, tree_of(tx.connection, new.chat).edited(old.seq), new.created_at)
    if files is None and FILES in old.metadata:
        new = attrs.evolve(new, metadata={**new.metadata, FILES: old.metadata[FILES]})
    (appended,) = attachments.append(tx, new, files or (), limits, most_bytes)
    return appended


def answer_again(
    tx: Transaction, new: NewMessage, which: int | str | None, limits: AttachmentsConfig, most_bytes: int
) -> AppendedMessage:
    """Let a question be open again; its answer is replaced with all that followed it. Returns the question.

    Args:
        new: takes the place of a question that was imported, which no turn answers, with the same text.
        which: the number or the id of the question or of its answer; None: the last question.

    Raises CannotReplace: there is no such question.
    """
    connection, chat = tx.connection, new.chat
    question = _question(connection, chat, which)
    if question is None:
        raise CannotReplace("there is no such question in what this chat shows; load the chat again")
    if question.channel.startswith(ORIGIN):
        return edit(
            tx,
            attrs.evolve(new, content=question.content, tokens=question.tokens),
            question.seq,
            None,
            limits,
            most_bytes,
        )
    if _is_answered(connection, question):
        _go_on(tx, new.user, chat, tree_of(connection, chat).answered_again(question.seq), new.created_at)
    return AppendedMessage(question, repeated=True)


def switch(tx: Transaction, user: UserId, chat: ChatId, seq: int, number: int, at: str) -> None:
    """Show another variant of a message, with what followed that one. Raises CannotReplace: there is no such one."""
    tree = tree_of(tx.connection, chat)
    places = [each for each in tree.places() if each.seq == seq or (each.fork.again and each.seq <= seq)]
    if not places:
        raise CannotReplace("this message has no variants; load the chat again")
    variants = tree.variants(places[-1].fork)
    if not 1 <= number <= len(variants):
        raise CannotReplace(f"it has the variants 1 to {len(variants)}")
    if variants[number - 1] != tree.active[-1].branch:
        _activate(tx, user, chat, tree, variants[number - 1], None, at)


def _active(connection: apsw.Connection, chat: ChatId, which: int | str) -> Message | None:
    column = "seq" if isinstance(which, int) else "id"
    return MESSAGES.one(connection, f"WHERE chat_id = ? AND {column} = ? AND {NOW}", chat, which)


def _question(connection: apsw.Connection, chat: ChatId, which: int | str | None) -> Message | None:
    said = f"WHERE chat_id = ? AND seq <= ? AND role = 'user' AND type = 'text' AND {NOW} ORDER BY seq DESC LIMIT 1"
    if which is None:
        return MESSAGES.one(connection, said, chat, 1 << 62)
    found = _active(connection, chat, which)
    if found is None or FORGOTTEN in found.metadata:
        return None
    turn = turns.get(connection, found.user, found.metadata["turn"]) if "turn" in found.metadata else None
    return MESSAGES.one(connection, said, chat, turn.last_seq if turn is not None else found.seq)


def _is_answered(connection: apsw.Connection, question: Message) -> bool:
    followed = "SELECT count(*) FROM messages WHERE chat_id = ? AND seq > ? AND role IN ('assistant', 'tool')"
    record = turns.answering(connection, question.chat, question.seq)
    if record is not None and record.status is not TurnStatus.FAILED:
        return True
    return bool(connection.execute(followed, (question.chat, question.seq)).get)


def _go_on(tx: Transaction, user: UserId, chat: ChatId, fork: Fork, at: str) -> None:
    tree = tree_of(tx.connection, chat)
    _activate(tx, user, chat, tree, max(tree.branches) + 1, fork, at)


# -- what is made of messages ------------------------------------------------------------------------------------------


def _activate(
    tx: Transaction, user: UserId, chat: ChatId, tree: BranchTree, branch: int, fork: Fork | None, at: str
) -> None:
    """Let a branch be the active one; a new one if there is a fork. Raises NoSuchChat."""
    connection = tx.connection
    session = messages.session(connection, chat)
    if session is None:
        raise NoSuchChat(name_of(chat))
    change = BranchChange(branch=branch, last_seq=session.last_seq)
    if fork is not None:
        change = attrs.evolve(change, parent=fork.parent, before_seq=fork.before_seq, again=fork.again)
    going = _going(connection, user, chat, tree, change)
    change = attrs.evolve(change, turns=going.of_question, hidden=tuple(_made_of(connection, going)))
    before = hidden(connection, user, chat)
    copies = summaries.covering(connection, user, list(going.rows))
    tx.journal(BRANCH.put(user, name_of(chat), change, at))
    for each in change.hidden:
        tx.journal(_kind(each.what).removed(user, each.thing, at))
        for older in facts.superseded_by(connection, user, FactId(each.thing)) if each.what == FACT.what else ():
            tx.journal(FACT.put(user, older.id, attrs.evolve(older, superseded_by=None, updated_at=at), at))
    left = set(hidden(connection, user, chat))
    for each in before:
        if each not in left:
            _bring_back(tx, user, _kind(each.what), each.thing, at)
    for of_chat, number in copies:
        path = tx.data_dir / copy_path(of_chat, number)
        tx.after_commit.append(lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]


@attrs.frozen(kw_only=True)
class _Going:
    """What is active and will be replaced."""

    user: UserId
    rows: dict[int, tuple[str, int, int | None, str | None]]
    """Id, seq, topic and turn of the messages, by their row ids."""
    turns: tuple[str, ...]
    of_question: tuple[str, ...]
    """Those of the turns whose question stays."""

    def last_of(self, turn: str) -> int | None:
        return max((seq for _, seq, _, its_turn in self.rows.values() if its_turn == turn), default=None)


def _going(connection: apsw.Connection, user: UserId, chat: ChatId, tree: BranchTree, change: BranchChange) -> _Going:
    new = tree.branches.get(change.branch)
    if new is None:
        place = {"parent": change.parent, "before_seq": change.before_seq, "again": change.again}
        path = [*tree.path(change.parent), Branch(branch=change.branch, **place)]
    else:
        path = list(tree.path(change.branch))
    at = parting(tree.active, path)
    rows = (
        f"SELECT rowid, id, seq, topic_id, metadata ->> '$.turn' FROM messages WHERE chat_id = ? AND seq >= ? AND {NOW}"  # noqa: S608
    )
    ended = f"SELECT turn_id, last_seq FROM turns WHERE chat_id = ? AND last_seq >= ? AND {turns.NOW}"  # noqa: S608
    found = list(connection.execute(ended, (chat, at.turns_from)))
    return _Going(
        user=user,
        rows={rowid: tuple(each) for rowid, *each in connection.execute(rows, (chat, at.before_seq))},
        turns=tuple(turn for turn, _ in found),
        of_question=tuple(sorted(turn for turn, last in found if last < at.before_seq)),
    )


_WITH_OTHERS = """
SELECT DISTINCT topic_id FROM messages
WHERE topic_id IN (SELECT value FROM json_each(?)) AND rowid NOT IN (SELECT value FROM json_each(?))
"""


def _made_of(connection: apsw.Connection, going: _Going) -> Iterator[HiddenThing]:
    """Facts and people that were made of nothing else."""
    if not going.rows:
        return
    first = min(seq for _, seq, _, _ in going.rows.values())
    seqs = {message: seq for message, seq, _, _ in going.rows.values()}
    touched = {topic for _, _, topic, _ in going.rows.values() if topic is not None}
    mixed = connection.execute(_WITH_OTHERS, (json.dumps(sorted(touched)), json.dumps(list(going.rows))))
    whole = [str(topic) for topic in touched - {topic for (topic,) in mixed}]
    query = """
    SELECT id, message_id, turn_id FROM facts WHERE user_id = ?1 AND (
        message_id IN (SELECT value FROM json_each(?2)) OR turn_id IN (SELECT value FROM json_each(?3))
        OR message_id IS NULL AND turn_id IS NULL AND topic IN (SELECT value FROM json_each(?4)))
    """
    among = (json.dumps(list(seqs)), json.dumps(going.turns), json.dumps(whole))
    for fact, message, turn in connection.execute(query, (going.user, *among)):
        seq = seqs.get(message) or (going.last_of(turn) if turn else None)
        yield HiddenThing(what=FACT.what, thing=fact, seq=seq or first)
    if PERSON.made_of is not None:
        for person in sorted(PERSON.made_of(connection, going.user, list(going.rows))):
            if PERSON.is_there(connection, going.user, person):
                yield HiddenThing(what=PERSON.what, thing=person, seq=first)


def _kind(what: str) -> Kind[Any]:
    return next(kind for kind in KINDS if kind.what == what)


def _bring_back(tx: Transaction, user: UserId, kind: Kind[Any], key: str, at: str) -> None:
    """Restore what was hidden, unless it was forgotten, is there again, or is said by another fact."""
    past = [change.value for change in kind.history(tx.connection, user, key) if change.value is not None]
    if not past or kind.is_there(tx.connection, user, key) or MARK in kind.said(kind.fields(past[-1])):
        return
    value = past[-1]
    if kind is FACT and value.active and facts.same_text(tx.connection, user, value.text, value.id) is not None:
        return
    older = facts.revived_from(tx.connection, user, value.id) if kind is FACT and value.active else []
    tx.journal(kind.put(user, key, value, at))
    for each in older:
        tx.journal(FACT.put(user, each.id, attrs.evolve(each, superseded_by=value.id, updated_at=at), at))
