"""What a pull tells its caller while it works."""

from typing import Literal, Protocol, TypeAlias

import attrs

Phase: TypeAlias = Literal["wait", "download", "check", "extract", "convert", "done", "present"]
"""wait: another process pulls this model. check: a package kept from an earlier pull is being verified. done: just
installed. present: it was there already."""


@attrs.frozen(kw_only=True)
class Step:
    """One report. Phases come in the order above; ``download`` and ``extract`` report many times."""

    model: str
    phase: Phase
    done_bytes: int = 0
    total_bytes: int = 0
    """0 where a phase has no size. For a download an expectation: ``done_bytes`` may end a little off."""


class Progress(Protocol):
    """Called from the thread that pulls, at most a few times a second. Must return quickly; raising stops the pull."""

    def __call__(self, step: Step, /) -> None:
        """Takes one report."""
        ...


def silent(_step: Step, /) -> None:
    """A ``Progress`` for callers that do not care."""
