"""What the writer can be asked: typed requests, each with its reply cell."""

from typing import TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.message import Message, NewMessage
from klaw.domain.turn import TurnRecord


@attrs.frozen
class Appended:
    """Outcome of one message of an ``Append``."""

    message: Message
    repeated: bool
    """The id was there already; ``message`` is the stored one and nothing was written."""


@attrs.frozen(kw_only=True)
class Append:
    """Store messages in order and, with them, the turn that they end: all or nothing, durable when answered."""

    messages: tuple[NewMessage, ...]
    reply: Reply[tuple[Appended, ...]]
    turn: TurnRecord | None = None


@attrs.frozen(kw_only=True)
class StoreVectors:
    """Store vectors (rowid, little-endian float32 bytes) made by a model. Answers how many were new."""

    model_id: str
    vectors: tuple[tuple[int, bytes], ...]
    reply: Reply[int]


@attrs.frozen(kw_only=True)
class PrepareVectors:
    """Make the vector table fit a model. Answers whether another model's vectors were dropped."""

    model_id: str
    dimension: int
    reply: Reply[bool]


@attrs.frozen(kw_only=True)
class EncodeVectors:
    """Make codes for some of the vectors that have none. Answers whether there may be more to do."""

    reply: Reply[bool]


@attrs.frozen(kw_only=True)
class Ping:
    """Prove that the writer works: answered after a real (empty) transaction."""

    reply: Reply[None]


Request: TypeAlias = Append | StoreVectors | PrepareVectors | EncodeVectors | Ping
