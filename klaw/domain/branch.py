"""Variants of a chat: the branches that edited messages and repeated answers open, and which of them is shown. Pure.

Branch 0 is the chat as it began. A message belongs to the branch that was active when it was stored. It is active while
its branch is on the path from the active branch to branch 0, and its number is below the place where that path leaves
the branch.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import attrs

REPLACED = "replaced"
"""In the metadata of the row that keeps a replaced message's number: the branch that the message belongs to."""
END = 1 << 62


@attrs.frozen(kw_only=True)
class Branch:
    branch: int = 0
    parent: int | None = None
    before_seq: int = 0
    """The first message of the parent that it replaces."""
    again: bool = False
    """It begins with another answer to the message before; otherwise with another message of the user."""
    first_seq: int = 0
    """The number of its own first message."""
    entry: int = 0
    """Of the memory journal: when it last became active."""

    @property
    def fork(self) -> "Fork":
        assert self.parent is not None
        return Fork(self.parent, self.before_seq, self.again)

    @property
    def turns_from(self) -> int:
        """Turns on messages from this number on are its own: another answer belongs to the same question."""
        return self.before_seq - self.again


@attrs.frozen
class Fork:
    """Where variants begin: a message of a branch, or (``again``) the answer in its place."""

    parent: int
    before_seq: int
    again: bool


@attrs.frozen
class Variant:
    """Which of the variants of a message is shown."""

    number: int
    """1 for the first."""
    count: int


@attrs.frozen(kw_only=True)
class VariantPlace:
    fork: Fork
    seq: int
    """The first message that may show it: the message itself, or the first one behind the question."""
    variant: Variant

    def holds(self, seq: int) -> bool:
        return seq == self.seq or (self.fork.again and seq > self.seq)


Path: TypeAlias = Sequence[Branch]


class BranchTree:
    """The branches of one chat."""

    def __init__(self, branches: Iterable[Branch]) -> None:
        self.branches: Mapping[int, Branch] = {0: Branch(), **{each.branch: each for each in branches}}

    @cached_property
    def active(self) -> Path:
        """The active branch, after those that it goes on from."""
        return self.path(max(self.branches.values(), key=lambda each: each.entry).branch)

    def path(self, branch: int | None) -> Path:
        found: list[Branch] = []
        while branch is not None:
            found.append(self.branches[branch])
            branch = found[-1].parent
        return found[::-1]

    def edited(self, seq: int) -> Fork:
        """Where another message in the place of an active one begins."""
        holder = part_of(self.active, seq)
        if holder.parent is not None and not holder.again and seq == holder.first_seq:
            return holder.fork
        return Fork(holder.branch, seq, again=False)

    def answered_again(self, question: int) -> Fork:
        """Where another answer to an active message begins."""
        return Fork(part_of(self.active, question).branch, question + 1, again=True)

    def variants(self, fork: Fork) -> list[int]:
        """The branches to choose from at a fork, the oldest first: each is the last active one of its variant."""
        return [self._last_active(fork, child) for child in (None, *self._children(fork))]

    def places(self) -> list[VariantPlace]:
        """All places of the active path that have variants, in their order."""
        forks = {each.fork for each in self.branches.values() if each.parent is not None}
        found = []
        for fork in sorted(forks, key=lambda each: (each.before_seq, each.again)):
            for number, child in enumerate((None, *(children := self._children(fork))), 1):
                if _shows(self.active, fork, child):
                    seq = fork.before_seq if child is None else self.branches[child].first_seq
                    found.append(VariantPlace(fork=fork, seq=seq, variant=Variant(number, 1 + len(children))))
        return found

    def _children(self, fork: Fork) -> list[int]:
        return sorted(each.branch for each in self.branches.values() if each.parent is not None and each.fork == fork)

    def _last_active(self, fork: Fork, child: int | None) -> int:
        showing = (each for each in self.branches.values() if _shows(self.path(each.branch), fork, child))
        return max(showing, key=lambda each: each.entry).branch


def _shows(path: Path, fork: Fork, child: int | None) -> bool:
    """Whether a path goes on at a fork with a child, or (None) with the branch that was there before."""
    if child is not None:
        return any(each.branch == child for each in path)
    behind = next((each for each in path if each.parent == fork.parent), None)
    return any(each.branch == fork.parent for each in path) and (behind is None or behind.before_seq > fork.before_seq)


def part_of(path: Path, seq: int) -> Branch:
    """The branch on a path that an active message belongs to."""
    return next(each for each in reversed(path) if each.before_seq <= seq)


def ends(path: Path) -> list[tuple[Branch, int, int]]:
    """Each branch of a path with the numbers before which its active messages, and the questions of its active turns,
    end."""
    behind = [(each.before_seq, each.turns_from) for each in path[1:]]
    return [(each, *end) for each, end in zip(path, [*behind, (END, END)], strict=True)]


def parting(old: Path, new: Path) -> Branch:
    """The branch whose beginning is where two paths part; what is before it stays."""
    same = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one.branch != other.branch), None)
    at = min(len(old), len(new)) if same is None else same
    steps = [path[at] for path in (old, new) if len(path) > at]
    return min(steps, key=lambda each: (each.before_seq, each.turns_from))
