"""Replacing messages of a chat by variants, and going from one variant to another; for the writer."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import apsw
import attrs

from klaw.config.schema import AttachmentsConfig
from klaw.domain.attachment import FILES, NamedFile
from klaw.domain.branch import REPLACED, Fork, parting
from klaw.domain.fact import FactId
from klaw.domain.forget import MARK
from klaw.domain.imported import ORIGIN
from klaw.domain.message import Message, MessageKind, NewMessage, Role, TurnStatus
from klaw.domain.names import ChatId, UserId, name_of
from klaw.errors import CannotReplace
from klaw.store.changes import Kind
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import attachments, facts, messages, summaries, turns
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.messages import MESSAGES, NOW, AppendedMessage
from klaw.store.kinds.people import PERSON, only_spoken_of_in
from klaw.store.kinds.variants import branches
from klaw.store.kinds.variants.branches import BRANCH, BranchChange, HiddenThing, tree_of


@attrs.frozen(kw_only=True)
class Wish:
    """Which message is to have another variant, and what that is."""

    which: int | str | None = None
    """Its number, or its id; None: the last one of the user. To be answered again, it may also be the answer."""
    edits: bool = False
    """The new message takes its place; otherwise it is answered again."""
    files: Sequence[NamedFile] | None = None
    """Of the new message; None: those of the old one."""
    number: int | None = None
    """It gets nothing new: this variant of it is shown; of a message that is named by its id, the one that it is in."""


def vary(
    tx: Transaction, new: NewMessage, wish: Wish, limits: AttachmentsConfig, most_bytes: int
) -> AppendedMessage | None:
    """Show another variant of a message in place of it and all that followed. Returns the question that is open then.

    Args:
        new: the new message; when it is only answered again, a copy for one that was imported, which no turn answers.

    Raises:
        CannotReplace: the message is not shown, not the user's, or has no such variant.
        IdConflict, TooMuchToday, AttachmentRefused: as for any message; nothing was changed.
    """
    connection, chat = tx.connection, new.chat
    if wish.number is not None:
        _show(tx, new, wish.which, wish.number)
        return None
    if wish.edits and messages.find(connection, new.user, new.id) is not None:
        return messages.append_one(tx, new)  # asked for again
    old = _question(connection, chat, wish.which, edits=wish.edits)
    if old is None:
        raise CannotReplace("there is no such message of yours in what this chat shows; load the chat again")
    tree = tree_of(connection, chat)
    if not wish.edits and not old.channel.startswith(ORIGIN):
        if _is_answered(connection, old):
            _activate(tx, new, max(tree.branches) + 1, tree.answered_again(old.seq))
        return AppendedMessage(old, repeated=True)
    _activate(tx, new, max(tree.branches) + 1, tree.edited(old.seq))
    if not wish.edits:
        new = attrs.evolve(new, content=old.content, tokens=old.tokens)
    if wish.files is None and FILES in old.metadata:
        new = attrs.evolve(new, metadata={**new.metadata, FILES: old.metadata[FILES]})
    return attachments.append(tx, new, wish.files or (), limits, most_bytes)[0]


def _show(tx: Transaction, at: NewMessage, seq: int | str | None, number: int) -> None:
    if isinstance(seq, str):
        row = messages.find(tx.connection, at.user, seq)
        if row is not None and REPLACED in row.metadata:
            _activate(tx, at, row.metadata[REPLACED], None)
        return
    tree = tree_of(tx.connection, at.chat)
    places = [each for each in tree.places() if isinstance(seq, int) and each.holds(seq)]
    variants = tree.variants(places[-1].fork) if places else []
    if not 1 <= number <= len(variants):
        raise CannotReplace("this message has no such variant; load the chat again")
    if variants[number - 1] != tree.active[-1].branch:
        _activate(tx, at, variants[number - 1], None)


def _question(connection: apsw.Connection, chat: ChatId, which: int | str | None, *, edits: bool) -> Message | None:
    said = f"WHERE chat_id = ? AND seq <= ? AND role = 'user' AND type = 'text' AND {NOW} ORDER BY seq DESC LIMIT 1"
    if which is None:
        return MESSAGES.one(connection, said, chat, 1 << 62)
    column = "seq" if isinstance(which, int) else "id"
    found = MESSAGES.one(connection, f"WHERE chat_id = ? AND {column} = ? AND {NOW}", chat, which)
    if found is None or (found.role, found.type) == (Role.USER, MessageKind.TEXT):
        return found
    turn = turns.get(connection, found.user, found.metadata["turn"]) if "turn" in found.metadata else None
    if edits or found.role is not Role.ASSISTANT:
        return None
    return MESSAGES.one(connection, said, chat, turn.last_seq if turn is not None else found.seq)


def _is_answered(connection: apsw.Connection, question: Message) -> bool:
    followed = "SELECT count(*) FROM messages WHERE chat_id = ? AND seq > ? AND role IN ('assistant', 'tool')"
    record = turns.answering(connection, question.chat, question.seq)
    if record is not None and record.status is not TurnStatus.FAILED:
        return True
    return bool(connection.execute(followed, (question.chat, question.seq)).get)


def _activate(tx: Transaction, at: NewMessage, branch: int, fork: Fork | None) -> None:
    """Let a branch be the active one; a new one if there is a fork."""
    connection, user, chat = tx.connection, at.user, at.chat
    session = messages.session(connection, chat)
    assert session is not None
    change = BranchChange(branch=branch, last_seq=session.last_seq)
    if fork is not None:
        change = attrs.evolve(change, parent=fork.parent, before_seq=fork.before_seq, again=fork.again)
    tree = tree_of(connection, chat)
    start = parting(tree.active, branches.changed(tree, change, branches.NEXT).active)
    query = f"SELECT turn_id, last_seq FROM turns WHERE chat_id = ? AND last_seq >= ? AND {turns.NOW}"  # noqa: S608
    ended = {str(turn): last for turn, last in connection.execute(query, (chat, start.turns_from))}
    rows = f"SELECT rowid FROM messages WHERE chat_id = ? AND seq >= ? AND {NOW}"  # noqa: S608 - a constant
    going = [int(rowid) for (rowid,) in connection.execute(rows, (chat, start.before_seq))]
    change = attrs.evolve(
        change,
        turns=tuple(sorted(turn for turn, last in ended.items() if last < start.before_seq)),
        hidden=tuple(_made_of(connection, user, going, list(ended))),
    )
    before = branches.hidden(connection, user, chat)
    copies = summaries.covering(connection, user, going)
    tx.journal(BRANCH.put(user, name_of(chat), change, at.created_at))
    for each in change.hidden:
        tx.journal(_KINDS[each.what].removed(user, each.thing, at.created_at))
        for older in facts.superseded_by(connection, user, FactId(each.thing)):
            _put_fact(tx, older, None, at.created_at)
    for each in sorted(before - branches.hidden(connection, user, chat), key=lambda each: each.thing):
        _bring_back(tx, user, _KINDS[each.what], each.thing, at.created_at)
    paths = (tx.data_dir / summaries.copy_path(*each) for each in copies)
    tx.after_commit += [partial(path.unlink, missing_ok=True) for path in paths]


# -- what was made of nothing but replaced messages --------------------------------------------------------------------

_KINDS: dict[str, Kind[Any]] = {FACT.what: FACT, PERSON.what: PERSON}
_FACTS = """
WITH going AS (SELECT rowid, id, seq, topic_id, metadata ->> '$.turn' AS turn FROM messages
    WHERE rowid IN (SELECT value FROM json_each(?2)))
SELECT f.id, coalesce(
    (SELECT max(seq) FROM going WHERE id = f.message_id OR turn = f.turn_id OR CAST(topic_id AS TEXT) = f.topic),
    (SELECT min(seq) FROM going))
FROM facts AS f WHERE f.user_id = ?1 AND (
    f.message_id IN (SELECT id FROM going) OR f.turn_id IN (SELECT value FROM json_each(?3))
    OR f.message_id IS NULL AND f.turn_id IS NULL AND f.topic IN (SELECT CAST(topic_id AS TEXT) FROM going)
        AND NOT EXISTS (SELECT 1 FROM messages AS m
            WHERE m.topic_id = CAST(f.topic AS INTEGER) AND m.rowid NOT IN (SELECT rowid FROM going)))
"""


def _made_of(
    connection: apsw.Connection, user: UserId, going: Sequence[int], ended: Sequence[str]
) -> Iterator[HiddenThing]:
    if going:
        bound = (user, json.dumps(list(going)), json.dumps(list(ended)))
        found: list[Any] = connection.execute(_FACTS, bound).fetchall()
        for fact, seq in found:
            yield HiddenThing(what=FACT.what, thing=fact, seq=seq)
        (first,) = messages.by_rowids(connection, going[:1])
        for person in sorted(only_spoken_of_in(connection, user, going)):
            if PERSON.is_there(connection, user, person):
                yield HiddenThing(what=PERSON.what, thing=person, seq=first.seq)


def _bring_back(tx: Transaction, user: UserId, kind: Kind[Any], key: str, at: str) -> None:
    """Restore what was hidden, unless it was forgotten, is there again, or is said by another fact."""
    past = [change.value for change in kind.history(tx.connection, user, key) if change.value is not None]
    if not past or kind.is_there(tx.connection, user, key) or MARK in kind.said(kind.fields(past[-1])):
        return
    value, older = past[-1], list[Any]()
    if kind is FACT and value.active:
        if facts.same_text(tx.connection, user, value.text, value.id) is not None:
            return
        older = facts.revived_from(tx.connection, user, value.id)
    tx.journal(kind.put(user, key, value, at))
    for each in older:
        _put_fact(tx, each, value.id, at)


def _put_fact(tx: Transaction, fact: Any, superseded_by: FactId | None, at: str) -> None:
    tx.journal(FACT.put(fact.user, fact.id, attrs.evolve(fact, superseded_by=superseded_by, updated_at=at), at))
