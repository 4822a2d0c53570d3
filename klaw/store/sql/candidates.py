"""SQL of recall: both ranked lists of one query and the messages in them, in one transaction."""

from collections.abc import Sequence

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.domain.message import Message
from klaw.domain.names import ChatId
from klaw.store.sql import fulltext, messages, vectors
from klaw.store.sql.reading import snapshot

log = structlog.get_logger("klaw.recall")

_DAMAGE = (apsw.SQLError, apsw.CorruptError)
"""What SQLite and its extensions say of a damaged index; not what an interrupted or busy search says."""


@attrs.frozen(kw_only=True)
class Scope:
    """Where recall may look: one chat, from a segment's first message to the window's."""

    chat: ChatId
    first_seq: int
    end_seq: int
    """The first seq that is not searched: the window's first message."""


@attrs.frozen(kw_only=True)
class Found:
    """Both lists, the best first, and the messages in them."""

    neighbours: Sequence[vectors.Neighbour] = ()
    hits: Sequence[fulltext.TextHit] = ()
    messages: Sequence[Message] = ()
    vectors_failed: bool = False
    """The vector index is damaged; the other list is complete."""
    text_failed: bool = False
    """The full-text index is damaged; the other list is complete."""


def search_both(
    connection: apsw.Connection, vector: bytes | None, words: Sequence[str], scope: Scope, depth: int
) -> Found:
    """Search a scope by vector (if there is one) and by words; each list has at most ``depth`` results.

    The scope is a condition inside both searches: a filter after them would return nothing as soon as messages outside
    are nearer.
    """
    with snapshot(connection):
        session = messages.session(connection, scope.chat)
        bounds = messages.rowid_bounds(connection, scope.chat, scope.first_seq, scope.end_seq)
        if session is None or bounds is None:
            return Found()
        neighbours, failed = _neighbours(connection, vector, session.key, scope, depth)
        hits, text_failed = _hits(connection, words, session.key, bounds, depth)
        rowids = dict.fromkeys([n.rowid for n in neighbours] + [h.rowid for h in hits])
        found = messages.by_rowids(connection, list(rowids))
    # The lists are in scope by construction; a row of a damaged index must still never get out.
    inside = [m for m in found if m.chat == scope.chat and scope.first_seq <= m.seq < scope.end_seq]
    return Found(neighbours=neighbours, hits=hits, messages=inside, vectors_failed=failed, text_failed=text_failed)


def _neighbours(
    connection: apsw.Connection, vector: bytes | None, chat_key: int, scope: Scope, depth: int
) -> tuple[Sequence[vectors.Neighbour], bool]:
    if vector is None:
        return (), False
    try:
        return vectors.nearest(connection, vector, chat_key, scope.first_seq, scope.end_seq, depth), False
    except _DAMAGE as error:
        log.warning("vector_search_failed", error=error_class(error))
        return (), True


def _hits(
    connection: apsw.Connection, words: Sequence[str], chat_key: int, bounds: tuple[int, int], depth: int
) -> tuple[Sequence[fulltext.TextHit], bool]:
    try:
        return fulltext.search(connection, words, chat_key, bounds[0], bounds[1] + 1, depth), False
    except _DAMAGE as error:
        log.warning("text_search_failed", error=error_class(error))
        return (), True
