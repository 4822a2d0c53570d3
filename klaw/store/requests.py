"""What the writer can be asked: typed requests, each with its reply cell."""

from typing import Literal, TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.coverage import Damage
from klaw.domain.message import Message, NewMessage
from klaw.domain.names import UserId
from klaw.domain.task import Run, Task, TaskName
from klaw.domain.turn import TurnRecord
from klaw.store.background_requests import OfBackground
from klaw.store.forget_requests import AloneForForgetting, OfForgetting
from klaw.store.memory_requests import OfMemory
from klaw.store.person_requests import ChangePeople
from klaw.store.reindex.places import Places
from klaw.store.reindex.values import Committed, Handover, Ready
from klaw.store.sql.coverage import Repaired
from klaw.store.sql.vectors import Prepared
from klaw.store.topic_requests import OfTopics


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
class PutTask:
    """Store a task, a new one or in place of one of its name. Answers it."""

    task: Task
    expected: Literal["new", "existing"]
    reply: Reply[Task]


@attrs.frozen(kw_only=True)
class RemoveTask:
    """Remove a task; its runs stay. Answers what it was."""

    user: UserId
    name: TaskName
    at: str
    """When. ISO-8601 UTC with milliseconds."""
    reply: Reply[Task]


@attrs.frozen(kw_only=True)
class Transcript:
    """Messages of a run for its JSONL. They are no rows of ``messages``, and recall never finds them."""

    first_seq: int
    """Place of the first one within the run: 1, 2 …"""
    messages: tuple[NewMessage, ...]


@attrs.frozen
class Begun:
    """Outcome of a ``BeginRun``."""

    run: Run
    repeated: bool
    """There was a run of this user, task, kind, due and attempt already; it is ``run``, and nothing was written."""
    appended: tuple[Appended, ...] = ()
    """The notice, if there was one."""


@attrs.frozen(kw_only=True)
class BeginRun:
    """Store a run that begins, or that is refused, with what a chat is told of it: all or nothing."""

    run: Run
    notice: NewMessage | None
    reply: Reply[Begun]


@attrs.frozen(kw_only=True)
class AppendTranscript:
    """Add messages to the JSONL of a run that has not ended."""

    run: Run
    transcript: Transcript
    reply: Reply[None]


@attrs.frozen
class RunSaved:
    """Outcome of a ``SaveRun``."""

    run: Run
    appended: tuple[Appended, ...]
    """The delivery and the notice, as far as there were any, in this order."""
    repeated: bool
    """The same was saved before; nothing was written."""


@attrs.frozen(kw_only=True)
class SaveRun:
    """Store a run's next or last state with what it says: lines of its transcript, a delivery, a notice. All or
    nothing."""

    run: Run
    transcript: Transcript | None
    delivery: NewMessage | None
    notice: NewMessage | None
    reply: Reply[RunSaved]


@attrs.frozen(kw_only=True)
class StoreVectors:
    """Store vectors (rowid, little-endian float32 bytes) made by a model. Answers how many were new."""

    model_id: str
    vectors: tuple[tuple[int, bytes], ...]
    as_of: int | None
    """The memory journal's last entry before the texts were read: of a user who has forgotten something since none is
    stored, because what was read may hold it."""
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
Between: TypeAlias = MarkCommits | SwapDatabase | AloneForForgetting
"""Carried out alone, between two groups."""
OfTasks: TypeAlias = PutTask | RemoveTask | BeginRun | AppendTranscript | SaveRun
"""What changes tasks and runs."""
Remembered: TypeAlias = OfMemory | OfTopics | ChangePeople | OfForgetting | OfBackground
"""What changes what is remembered."""
Request: TypeAlias = Append | OfTasks | Remembered | OfVectors | RepairIndex | Ping | Between
