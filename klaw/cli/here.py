"""What a command is given that needs no server."""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from klaw.cli.output import ProgressLine
from klaw.config.paths import Paths
from klaw.operations.operation import Noun

A = TypeVar("A")
R = TypeVar("R")


@attrs.frozen(kw_only=True)
class Here:
    """The installation that the command is about, and the terminal."""

    paths: Paths
    home: str | None
    progress: ProgressLine
    quiet: bool
    """Standard output belongs to the result."""
    say: Callable[..., None]
    """Prints lines, unless ``quiet``."""
    warn: Callable[[str], None]


def command(
    noun: Noun, name: str, arguments: type[A], **how: Any
) -> Callable[[Callable[[A, Here], R]], Callable[[A, Here], R]]:
    """Declare a function as an operation that needs no server; ``how``: see ``Operation``."""

    def declare(handler: Callable[[A, Here], R]) -> Callable[[A, Here], R]:
        noun.add(name, arguments, handler, **how)
        return handler

    return declare
