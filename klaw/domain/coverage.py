"""The ``covered`` invariant: every message is in the window or findable by search; else it is counted and shown.

Values and arithmetic only. A message that a live summary holds is covered too: such ranges are taken out where the
window is, in ``ChatTally.uncovered``. One whose summary was evicted has to be found by search again.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import attrs

from klaw.domain.names import ChatId

NAMED = 1_000
"""Messages of a chat that are kept by number; of more only the count. At least as many as a window can show."""


@attrs.frozen(kw_only=True)
class IndexRow:
    """A message as the indexes know it."""

    rowid: int
    chat: ChatId
    seq: int
    searchable: bool
    """``domain.message.is_searchable``; the others are not searched by design."""
    words: int | None
    """Words that full text has of it; None when it has no row there."""
    vector: bool
    """Whether it has a vector."""
    marked: bool
    """Whether it is marked ``embedded``."""
    silent: bool = False
    """Neither index finds it, and it holds no word that could ("…", a picture of a smile)."""

    @property
    def findable(self) -> bool:
        return bool(self.words) or self.vector

    @property
    def lost(self) -> bool:
        """Whether it should be found and cannot be."""
        return self.searchable and not self.findable and not self.silent


@attrs.frozen(kw_only=True)
class Damage:
    """Rows (by rowid) where index and messages disagree."""

    missing_texts: tuple[int, ...] = ()
    """Searchable messages without a row in full text."""
    lost_vectors: tuple[int, ...] = ()
    """Marked as embedded, and without a vector: nothing would ever make it again."""
    unmarked_vectors: tuple[int, ...] = ()
    """With a vector, and not marked: making it again would fail."""
    orphan_vectors: tuple[int, ...] = ()
    """Vectors without a message."""
    orphan_texts: tuple[int, ...] = ()
    """Rows of full text without a message, or of one that is not searched by design."""

    @property
    def repairable(self) -> bool:
        """Whether there is something that the writer can repair by itself; orphans of full text it cannot."""
        return bool(self.missing_texts or self.lost_vectors or self.unmarked_vectors or self.orphan_vectors)

    def pieces(self, size: int) -> Iterator["Damage"]:
        """The same in parts of at most ``size`` rows each, without what cannot be repaired."""
        for field in attrs.fields(Damage):
            rows = getattr(self, field.name) if field.name != "orphan_texts" else ()
            for start in range(0, len(rows), size):
                yield Damage(**{field.name: rows[start : start + size]})

    def __add__(self, other: "Damage") -> "Damage":
        fields = [field.name for field in attrs.fields(Damage)]
        return Damage(**{name: getattr(self, name) + getattr(other, name) for name in fields})


def damage_of(rows: Iterable[IndexRow]) -> Damage:
    """What is wrong with the rows that are there."""
    known = list(rows)
    return Damage(
        missing_texts=tuple(row.rowid for row in known if row.searchable and row.words is None),
        lost_vectors=tuple(row.rowid for row in known if row.marked and not row.vector),
        unmarked_vectors=tuple(row.rowid for row in known if row.vector and not row.marked),
        orphan_texts=tuple(row.rowid for row in known if not row.searchable and row.words is not None),
    )


@attrs.define(kw_only=True)
class ChatTally:
    """Counts of one chat; messages are added in the order of their numbers."""

    messages: int = 0
    not_searchable: int = 0
    """Commands, their answers, marks of ``/new``, tool rows: not searched by design."""
    in_text: int = 0
    with_vector: int = 0
    wordless: int = 0
    """Searchable, without a word and without a vector: no question can name them."""
    lost: int = 0
    """Messages that search cannot find, in the window or not."""
    newest_lost: deque[int] = attrs.Factory(lambda: deque(maxlen=NAMED))
    """Their numbers; of many the newest."""

    def add(self, row: IndexRow) -> None:
        self.messages += 1
        self.not_searchable += not row.searchable
        self.in_text += row.searchable and bool(row.words)
        self.with_vector += row.vector
        self.wordless += row.searchable and row.silent
        if row.lost:
            self.lost += 1
            self.newest_lost.append(row.seq)

    def uncovered(self, window_start: int, summarised: Sequence[tuple[int, int]] = ()) -> int:
        """How many messages can neither be found nor stand in the window or in a live summary.

        Args:
            window_start: the number at which the window begins.
            summarised: first and last number of each range that a live summary holds.
        """
        return self.lost - sum(
            seq >= window_start or any(first <= seq <= last for first, last in summarised) for seq in self.newest_lost
        )

    def uncovered_seqs(self, window_start: int) -> list[int]:
        """The numbers of those, as far as they were kept."""
        return [seq for seq in self.newest_lost if seq < window_start]

    def __add__(self, later: "ChatTally") -> "ChatTally":
        """Both together; ``later`` holds the later messages."""
        return ChatTally(
            messages=self.messages + later.messages,
            not_searchable=self.not_searchable + later.not_searchable,
            in_text=self.in_text + later.in_text,
            with_vector=self.with_vector + later.with_vector,
            wordless=self.wordless + later.wordless,
            lost=self.lost + later.lost,
            newest_lost=deque([*self.newest_lost, *later.newest_lost], maxlen=NAMED),
        )


Tallies = dict[ChatId, ChatTally]


def add_rows(tallies: Tallies, rows: Iterable[IndexRow]) -> None:
    """Count rows, which come in ascending order."""
    for row in rows:
        if row.chat not in tallies:
            tallies[row.chat] = ChatTally()
        tallies[row.chat].add(row)


def joined(earlier: Tallies, later: Tallies) -> Tallies:
    """Two counts of different messages as one."""
    both = dict(earlier)
    for chat, tally in later.items():
        both[chat] = both[chat] + tally if chat in both else tally
    return both
