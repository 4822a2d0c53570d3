"""Glob patterns on paths, one folder at a time: ``*``, ``?``, ``[…]`` in a name, ``**`` for any number of folders.

Pure. The state is the set of positions in the pattern, so that many ``**`` cost no more than one.
"""

import fnmatch
from collections.abc import Iterable

import attrs

from klaw.toolbox.files.names import FileRefused, parts_of


@attrs.frozen
class Pattern:
    """A parsed pattern."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Raises FileRefused: it is empty, absolute, or goes upwards."""
        parts = parts_of(text)
        if not parts or ".." in parts:
            raise FileRefused("pattern: name files beneath the workspace, for instance **/*.md; no '..'")
        return cls(parts)

    def start(self) -> frozenset[int]:
        return self._with_empty(frozenset({0}))

    def step(self, state: frozenset[int], name: str) -> frozenset[int]:
        """The state after one more name of the path."""
        after = set()
        for position in state:
            if position == len(self.parts):
                continue
            if self.parts[position] == "**":
                after.add(position)
            elif fnmatch.fnmatchcase(name, self.parts[position]):
                after.add(position + 1)
        return self._with_empty(after)

    def _with_empty(self, state: Iterable[int]) -> frozenset[int]:
        """``**`` also stands for no folder at all."""
        found = set(state)
        for position, part in enumerate(self.parts):
            if position in found and part == "**":
                found.add(position + 1)
        return frozenset(found)

    def matches(self, state: frozenset[int]) -> bool:
        return len(self.parts) in state
