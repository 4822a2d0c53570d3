"""The toolbox: all tools there are. Filled by the composition root; MCP servers add and take away theirs later.

No actor: every method reads or changes one dictionary without an await in between.
"""

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from klaw.domain import tokens
from klaw.llm.types import ToolDescription
from klaw.toolbox.spec import ToolContext, ToolSpec


class Toolbox:
    """Tools by name.

    Args:
        disabled: ``tools.disabled``: names, or patterns such as ``github__*``, that are never offered.
    """

    def __init__(self, disabled: Iterable[str] = ()) -> None:
        self._disabled = tuple(disabled)
        self._specs: dict[str, ToolSpec] = {}

    def register(self, *specs: ToolSpec) -> None:
        """Add tools. Raises ValueError when a name is taken: then none is added."""
        names = [spec.name for spec in specs]
        taken = next((name for name in names if name in self._specs or names.count(name) > 1), None)
        if taken is not None:
            raise ValueError(f"there is a tool {taken} already")
        self._specs |= {spec.name: spec for spec in specs}

    def remove(self, *names: str) -> None:
        """Take tools away; calls that run go on. Names that are not there are ignored."""
        for name in names:
            self._specs.pop(name, None)

    def find(self, name: str, context: ToolContext) -> ToolSpec | None:
        """The tool of that name, if it is offered here."""
        spec = self._specs.get(name)
        return spec if spec is not None and self._is_offered(spec, context) else None

    def offered(self, context: ToolContext) -> tuple[ToolSpec, ...]:
        """The tools that a caller may use, in the order of their names."""
        return tuple(spec for _, spec in sorted(self._specs.items()) if self._is_offered(spec, context))

    def describe(self, context: ToolContext) -> tuple[ToolDescription, ...]:
        """The tool list of a request. The same tools give the same bytes, so that prompt caches hit."""
        return tuple(spec.told for spec in self.offered(context))

    def all(self) -> tuple[ToolSpec, ...]:
        """All tools, also disabled ones, in the order of their names."""
        return tuple(spec for _, spec in sorted(self._specs.items()))

    def is_disabled(self, name: str) -> bool:
        """Whether the configuration switches it off."""
        return any(fnmatchcase(name, pattern) for pattern in self._disabled)

    def _is_offered(self, spec: ToolSpec, context: ToolContext) -> bool:
        return not self.is_disabled(spec.name) and (spec.when is None or spec.when(context))


PER_TOOL = 8
"""Estimated tokens of what a chat template puts around a tool."""


def tools_tokens(tools: Sequence[ToolDescription]) -> int:
    """Estimated tokens of a request's tool list."""
    return sum(
        tokens.estimate(tool.name + tool.description + json.dumps(tool.parameters, ensure_ascii=False)) + PER_TOOL
        for tool in tools
    )
