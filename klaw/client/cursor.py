"""Where a client stands in one chat: what was delivered, what came too early, what is missing. Pure.

The rule that everything else relies on: ``take`` returns the seqs of a chat one by one, upwards, each once, however
often and in whatever order ``place`` was given them.
"""

from collections.abc import Sequence

from klaw.client.events import Entry

MAX_EARLY = 256
"""Entries kept while one before them is missing (or while the consumer is slow); more are fetched again later."""


class Cursor:
    """The place in one chat.

    Args:
        last: the seq of the last message that was delivered; None: the first one that comes decides.
    """

    def __init__(self, last: int | None) -> None:
        self.last = last
        self._asked: int | None = None
        self._head = last or 0
        self._early: dict[int, Entry] = {}

    @property
    def resuming(self) -> bool:
        """The server is sending what was missed; gaps close by themselves meanwhile."""
        return self._asked is not None

    def resume(self) -> None:
        """The server was asked for everything after ``last``."""
        self._asked = self.last

    def live(self) -> None:
        """The server is done with sending what was missed, or will not do it."""
        self._asked = None

    def caught_up(self, seq: int) -> bool:
        """The server has sent all there is, up to ``seq``.

        Returns whether the server is behind: it has less than the client saw before, because its data was replaced by
        an older copy. Then counting begins again there; otherwise the client would stay deaf for a long time.
        """
        behind = self._asked is not None and seq < self._asked
        self._asked = None
        if behind:
            self.last, self._head = seq, seq
            self._early.clear()
        else:
            self.reach(seq)
        return behind

    def place(self, entry: Entry) -> None:
        """Note an entry that arrived. One that was delivered already is ignored."""
        self.reach(entry.seq, start=entry.seq - 1)
        if self.last is None or entry.seq <= self.last:
            return
        known = self._early.get(entry.seq)
        if known is None:
            if len(self._early) < MAX_EARLY or entry.seq == self.last + 1:
                self._early[entry.seq] = entry
        elif known.created_at == "":
            # An acknowledgement knows less than the message itself.
            self._early[entry.seq] = entry

    def reach(self, seq: int, *, start: int | None = None) -> None:
        """Note that the chat has messages up to ``seq``, of which the missing ones are wanted.

        Args:
            start: where to begin if nothing is known yet, by default at ``seq`` itself.
        """
        if self.last is None:
            self.last = seq if start is None else start
        self._head = max(self._head, seq)

    def place_page(self, entries: Sequence[Entry]) -> None:
        """Note what the server gave when asked for everything after ``last``: what is not in it does not exist."""
        if not entries:
            self._head = max(self._early, default=self.last or 0)
            self.last = min(self._early, default=self._head + 1) - 1
            return
        if self.last is not None:
            self.last = max(self.last, entries[0].seq - 1)
        for entry in entries:
            self.place(entry)

    def take(self) -> Entry | None:
        """The next entry in order, now counted as delivered; None if it has not arrived."""
        if self.last is None:
            return None
        entry = self._early.pop(self.last + 1, None)
        if entry is not None:
            self.last = entry.seq
        return entry

    @property
    def has_gap(self) -> bool:
        """Whether the next entry exists but is not here: it has to be asked for."""
        return self.last is not None and self._head > self.last and self.last + 1 not in self._early
