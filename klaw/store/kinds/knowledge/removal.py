"""What goes with a knowledge base or a source: also texts of passages in receipts. The answers themselves stay."""

import json

import apsw
import attrs

from klaw.domain.knowledge import Base, BaseId, Source, SourceId
from klaw.domain.names import ChatId, UserId, user_of
from klaw.store.kinds.knowledge import bases, sources

MOST_TOLD = 200
MOST_PIECES = 12
LEAST_CHARS = 16
"""A shorter name stands in too much that has nothing to do with it."""


@attrs.frozen(kw_only=True)
class Citation:
    """An answer that was given something of a document."""

    chat: ChatId
    seq: int
    cited: bool


@attrs.frozen(kw_only=True)
class Going:
    """What is to go, and what knows of it."""

    owner: UserId
    base: Base
    whole: bool
    """The base itself, too."""
    sources: tuple[Source, ...]
    documents: int
    passages: int
    cited: tuple[Citation, ...]
    """The asking user's own answers, of each chat the newest first."""
    others: int
    """How many answers of others were given something of it."""
    turns: tuple[tuple[UserId, str], ...]
    """Whose receipts may hold texts of it …"""
    last_turn: int
    """… among those up to this row."""
    pieces: tuple[str, ...]
    """Texts of it to look for. Content: never logged."""

    @property
    def ids(self) -> tuple[str, ...]:
        return (*((self.base.id,) if self.whole else ()), *(each.id for each in self.sources))


_OF = "FROM kb_documents AS d WHERE d.source_id IN (SELECT value FROM json_each(?))"
_COUNT = f"SELECT count(*), coalesce(sum(d.passages), 0) {_OF}"
_USED = f"""
SELECT chat_id, seq, max(cited) FROM kb_used WHERE document_id IN (SELECT d.id {_OF})
GROUP BY chat_id, seq ORDER BY chat_id, seq DESC
"""  # noqa: S608 - likewise
_PIECES = f"""
SELECT p.text FROM kb_passages AS p WHERE p.document_id IN (SELECT d.id {_OF}) ORDER BY p.tokens DESC, p.rowid LIMIT ?
"""  # noqa: S608 - likewise
_TURNS = "SELECT user_id, turn_id FROM turns WHERE rowid > ? AND instr(receipt, ?) ORDER BY rowid"
_LAST_TURN = "SELECT coalesce(max(rowid), 0) FROM turns"


def look(
    connection: apsw.Connection, user: UserId, *, base: BaseId | None = None, source: SourceId | None = None
) -> Going:
    """What goes with a user's base or source. Raises NoSuchBase, NoSuchSource, NotAllowed."""
    if source is not None:
        going = [sources.get(connection, user, source)]
        of = bases.editable(connection, user, going[0].base)
    else:
        assert base is not None
        of = bases.owned(connection, user, base)
        going = sources.of_base(connection, user, base)
    last_turn = connection.execute(_LAST_TURN).get
    marked = json.dumps([each.id for each in going])
    ((documents, passages),) = connection.execute(_COUNT, (marked,))
    rows = connection.execute(_USED, (marked,))
    used = [Citation(chat=ChatId(chat), seq=seq, cited=bool(cited)) for chat, seq, cited in rows]
    own = [each for each in used if user_of(each.chat) == user]
    named = [name for each in going for name in (each.name, each.where)] + [of.description]
    pieces = [str(text) for (text,) in connection.execute(_PIECES, (marked, MOST_PIECES))]
    pieces += [each for each in named if len(each) >= LEAST_CHARS][:MOST_PIECES]
    return Going(
        owner=of.user,
        base=of,
        whole=source is None,
        sources=tuple(going),
        documents=documents,
        passages=passages,
        cited=tuple(own[:MOST_TOLD]),
        others=len(used) - len(own),
        turns=tuple(turns_naming(connection, source or of.id, 0)),
        last_turn=last_turn,
        pieces=tuple(dict.fromkeys(pieces)),
    )


def turns_naming(connection: apsw.Connection, of: str, after: int) -> list[tuple[UserId, str]]:
    """The turns after a row whose receipts name a base or a source."""
    return [(UserId(user), str(turn)) for user, turn in connection.execute(_TURNS, (after, of))]
