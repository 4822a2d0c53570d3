"""What the writer can be asked: typed requests, each with its reply cell."""

from typing import Literal, TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.coverage import Damage
from klaw.domain.message import Message, NewMessage
from klaw.domain.turn import TurnRecord
from klaw.store.reindex.places import Places
from klaw.store.reindex.values import Committed, Handover, Ready
from klaw.store.sql.coverage import Repaired
from klaw.store.sql.vectors import Prepared


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
    """Make the vector table fit a model, by one step that keeps nobody waiting for long."""

    model_id: str
    dimension: int
    reply: Reply[Prepared]
    anew: bool = False
    """The table is damaged: drop it and let every message be embedded again."""


@attrs.frozen(kw_only=True)
class EndReembedding:
    """Remember that all messages have a vector of the model in use."""

    reply: Reply[None]


@attrs.frozen(kw_only=True)
class RepairIndex:
    """Put right what full text and vectors lack or have too much of. Answers what was put right."""

    damage: Damage
    reply: Reply[Repaired]


@attrs.frozen(kw_only=True)
class EncodeVectors:
    """Make codes for some of the vectors that have none. Answers whether there may be more to do."""

    reply: Reply[bool]


@attrs.frozen(kw_only=True)
class Ping:
    """Prove that the writer works: answered after a real (empty) transaction."""

    reply: Reply[None]


@attrs.frozen(kw_only=True)
class MarkCommits:
    """Say what was committed since the mark before; ``begin`` and ``end`` the watching that makes that possible."""

    step: Literal["begin", "next", "end"]
    reply: Reply[Committed]


@attrs.frozen(kw_only=True)
class SwapDatabase:
    """Finish a new database with what came in last, and go on with it in place of the present one."""

    places: Places
    ready: Ready
    reply: Reply[Handover]


OfVectors: TypeAlias = StoreVectors | PrepareVectors | EncodeVectors | EndReembedding
"""What touches the vector tables."""
Between: TypeAlias = MarkCommits | SwapDatabase
"""Carried out alone, between two groups."""
Request: TypeAlias = Append | OfVectors | RepairIndex | Ping | Between
