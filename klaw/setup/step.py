"""What a set-up did with each file. Pure."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from klaw.errors import KlawError

Outcome: TypeAlias = Literal["made", "taken", "kept", "same", "skipped"]
"""``kept``: it was there and stays as it is; ``same``: it was there with the same content."""


class SetupRefused(KlawError):
    """The set-up cannot be done as asked; the text names the option that is wrong."""


@attrs.frozen(kw_only=True)
class Step:
    """One file or folder."""

    path: str
    """Relative to the workspace; of the configuration its name."""
    outcome: Outcome
    why: str = ""


def count(steps: Sequence[Step], *outcomes: Outcome) -> int:
    return sum(step.outcome in outcomes for step in steps)
