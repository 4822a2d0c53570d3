"""What the writer can be asked of people."""

import attrs

from klaw.actor.reply import Reply
from klaw.domain.names import UserId
from klaw.domain.person import Mention, Person, PersonId


@attrs.frozen(kw_only=True)
class ChangePeople:
    """Store people as they are to be, remove others, note mentions: all or nothing."""

    user: UserId
    put: tuple[Person, ...]
    removed: tuple[PersonId, ...]
    mentions: tuple[tuple[PersonId, Mention], ...]
    as_of: int | None
    """See ``PutFact``."""
    at: str
    reply: Reply[None]
