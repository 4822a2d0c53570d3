"""What of a chat's variants is shown: pages of messages, and where there are others to choose from."""

import json
from collections.abc import Sequence

import apsw
import attrs

from klaw.convert import MAX_WHOLE
from klaw.domain.branch import END, Variant
from klaw.domain.message import Message, Role
from klaw.domain.names import ChatId
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import messages
from klaw.store.kinds.messages import MESSAGES, NOW, WHOLE
from klaw.store.kinds.variants.branches import replaced, tree_of


@attrs.frozen(kw_only=True)
class VariantsPage:
    messages: Sequence[Message]
    branched: int = 0
    """``ChatRow.branched``."""
    variants: dict[int, Variant] = attrs.Factory(dict)
    """By the numbers of the messages that have several."""
    replaced: frozenset[int] = frozenset()
    """Numbers of those that a variant has replaced."""


def page(
    connection: apsw.Connection, chat: ChatId, limit: int, before: int | None, after: int | None, *, variants: bool
) -> VariantsPage:
    """Messages of a chat, oldest first: the first ones after a seq, or the last ones before one; ``variants``: also
    replaced ones."""
    source = WHOLE if variants else MESSAGES
    with snapshot(connection):
        if after is not None:
            query = f"WHERE chat_id = ? AND seq > ? AND {NOW} ORDER BY seq LIMIT ?"
            found = source.all(connection, query, chat, after, limit)
        else:
            query = f"WHERE chat_id = ? AND seq < ? AND {NOW} ORDER BY seq DESC LIMIT ?"
            found = source.all(connection, query, chat, MAX_WHOLE if before is None else before, limit)[::-1]
        session = messages.session(connection, chat)
        if not found or session is None or not session.branched:
            return VariantsPage(messages=found, branched=session.branched if session is not None else 0)
        bounds = found[0].seq, found[-1].seq
        return VariantsPage(
            messages=found,
            branched=session.branched,
            variants=of_messages(connection, chat, *bounds),
            replaced=replaced(connection, chat, *bounds) if variants else frozenset(),
        )


_ANSWER = f"""
SELECT seq FROM messages WHERE chat_id = ? AND seq >= ? AND seq < ? AND role = 'assistant' AND type = 'text' AND {NOW}
ORDER BY seq LIMIT 1
"""  # noqa: S608 - a constant


def of_messages(connection: apsw.Connection, chat: ChatId, first: int = 0, last: int = END) -> dict[int, Variant]:
    """The active messages between two numbers that have variants: those of the user, and answers."""
    places = tree_of(connection, chat).places()
    found: dict[int, Variant] = {}
    for place, end in zip(places, [*(each.seq for each in places[1:]), END], strict=True):
        if place.seq > last:
            break
        behind = (chat, place.seq, max(end, place.seq + 1) if place.fork.again else 0)
        seq = connection.execute(_ANSWER, behind).get if place.fork.again else place.seq
        if seq is not None and first <= seq <= last:
            found[seq] = place.variant
    return found


_ANSWERS = """
SELECT rowid FROM messages_whole
WHERE chat_id = ?1 AND role = 'assistant' AND type = 'text' AND metadata ->> '$.turn' IN (
    SELECT turn_id FROM turns
    WHERE chat_id = ?1 AND last_seq = (SELECT last_seq FROM turns WHERE turn_id = ?2 AND chat_id = ?1))
"""


def same_place(connection: apsw.Connection, message: Message) -> list[int]:
    """Row ids of a message and of its variants: what the user said instead of it, or what else answered."""
    if message.role is Role.ASSISTANT:
        rows = connection.execute(_ANSWERS, (message.chat, str(message.metadata.get("turn"))))
        return sorted({message.rowid, *(int(rowid) for (rowid,) in rows)})
    edits = [each for each in tree_of(connection, message.chat).branches.values() if each.parent is not None]
    starts = [(each.fork, (each.before_seq, each.first_seq)) for each in edits if not each.again]
    forks = {fork for fork, seqs in starts if message.seq in seqs}
    same = {message.seq, *(seq for fork, seqs in starts if fork in forks for seq in seqs)}
    query = "SELECT rowid FROM messages WHERE chat_id = ? AND seq IN (SELECT value FROM json_each(?)) ORDER BY rowid"
    return [int(rowid) for (rowid,) in connection.execute(query, (message.chat, json.dumps(sorted(same))))]
