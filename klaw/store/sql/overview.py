"""SQL for whoever runs the server: counts over all users, and turns without the scope of a user.

For the admin socket and its commands only. What answers a user goes through ``messages`` and ``turns``, which scope.
"""

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord
from klaw.store import migrations
from klaw.store.kinds import turns


@attrs.frozen(kw_only=True)
class Counts:
    """How much there is."""

    schema: int
    """Version of the database's schema."""
    users: int
    chats: int
    messages: int
    turns: int
    topics: int
    facts: int
    """Those that hold; history does not count."""
    people: int


_COUNTS = """
SELECT
    (SELECT count(DISTINCT user_id) FROM sessions),
    (SELECT count(*) FROM sessions),
    (SELECT count(*) FROM messages),
    (SELECT count(*) FROM turns),
    (SELECT count(*) FROM topics),
    (SELECT count(*) FROM facts WHERE superseded_by IS NULL),
    (SELECT count(*) FROM people WHERE merged_into IS NULL)
"""


def counts(connection: apsw.Connection) -> Counts:
    """Count everything; reads whole indexes, so not for every message."""
    users, chats, messages, turns_, topics, facts, people = connection.execute(_COUNTS).get
    return Counts(
        schema=migrations.current(connection),
        users=users,
        chats=chats,
        messages=messages,
        turns=turns_,
        topics=topics,
        facts=facts,
        people=people,
    )


_COUNT_PENDING = """
SELECT count(*) FROM messages
WHERE chat_id = ?1 AND role = 'user' AND type = 'text'
    AND seq >= (SELECT segment_start FROM sessions WHERE chat_id = ?1)
    AND seq > coalesce(
        (SELECT max(last_seq) FROM turns WHERE chat_id = ?1 AND status IN ('done', 'stopped')), 0)
"""


def count_pending(connection: apsw.Connection, chat: ChatId) -> int:
    """How many user messages of the chat's segment no turn has dealt with."""
    return int(connection.execute(_COUNT_PENDING, (chat,)).get)


_OWNER = "SELECT user_id FROM turns WHERE turn_id = ?"
_NEWEST = "SELECT turn_id FROM turns WHERE ?1 IS NULL OR user_id = ?1 ORDER BY ended_at DESC, turn_id DESC LIMIT 1"


def find_turn(
    connection: apsw.Connection, turn: str | None, chat: ChatId | None, user: UserId | None
) -> TurnRecord | None:
    """A turn of any user: by its id, else the newest of a chat, else the one that ended last of a user or of all."""
    if turn is None and chat is not None:
        return turns.last(connection, chat)
    found = turn if turn is not None else connection.execute(_NEWEST, (user,)).get
    owner = connection.execute(_OWNER, (found,)).get
    return turns.get(connection, UserId(owner), found) if owner is not None else None
