"""What the parts of a reindex tell each other and their callers. Pure values."""

from typing import Literal, TypeAlias

import attrs

from klaw.errors import StorageError

Phase: TypeAlias = Literal[
    "scan", "messages", "turns", "tasks", "runs", "transcripts", "documents", "vectors", "compare", "catch_up", "swap"
]
"""scan: logs of one kind are looked through (bytes). messages, turns, tasks (with facts, core
memory and summaries), runs: they are inserted. transcripts of runs: they are read. documents and vectors: taken
over from the old database. compare: rows of both. catch_up: what came in meanwhile.
swap: the files."""


@attrs.frozen
class Progress:
    """One report; phases come in the order above, ``scan`` before each kind, ``catch_up`` again and again."""

    phase: Phase
    done: int = 0
    total: int = 0
    """0 where nobody knows."""

    @property
    def percent(self) -> int:
        return 100 * self.done // self.total if self.total else 0


@attrs.frozen(kw_only=True)
class ReindexOptions:
    accept_differences: bool = False
    """Swap although the new database differs from the old one."""
    embed_again: bool = False
    """Take over no vector."""


@attrs.frozen(kw_only=True)
class Side:
    rows: int
    digest: str
    """SHA-256 over the rows in the order of their keys: the same content gives the same digest, whatever the pages."""


@attrs.frozen(kw_only=True)
class TableComparison:
    name: str
    live: Side
    built: Side
    only_live: int
    only_built: int
    differing: int
    examples: tuple[str, ...] = ()
    """Keys of a few rows that differ; never content."""
    same: bool
    """Whether the built table may take the place of the live one."""


@attrs.frozen(kw_only=True)
class Tally:
    """What the logs held: messages, turns, runs, and changes of the kinds (``Kind.counted``)."""

    messages: int = 0
    turns: int = 0
    tasks: int = 0
    facts: int = 0
    chats: int = 0
    core: int = 0
    summaries: int = 0
    topics: int = 0
    people: int = 0
    bases: int = 0
    forgets: int = 0
    days: int = 0
    spendings: int = 0
    runs: int = 0
    malformed: int = 0
    """Lines that are no record; they stay in the logs."""
    conflicts: int = 0
    """Records whose place another record has."""
    reused: int = 0
    """Messages that an interrupted reindex had inserted already, checked against the logs."""

    def changes(self) -> int:
        """Records that were inserted or carried out."""
        return int(sum(attrs.astuple(self))) - self.malformed - self.conflicts - self.reused


@attrs.frozen(kw_only=True)
class Vectors:
    taken_over: int = 0
    waiting: int = 0
    """Left for the server's embedder."""


@attrs.frozen(kw_only=True)
class ReindexReport:
    swapped: bool
    tally: Tally
    vectors: Vectors
    tables: tuple[TableComparison, ...]
    compared: bool
    """False: the old database is missing or cannot be read."""
    reason: str | None
    set_aside: int = 0
    """Lines that cannot be stored and were taken out of the logs; a running server leaves them there."""
    seconds: float


class ReindexRefused(StorageError):
    """A reindex cannot begin or go on; nothing was changed. The text says what to do."""
