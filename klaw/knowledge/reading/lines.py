"""The child's lines (``output``) as the parent reads them. Pure."""

from typing import Annotated

import attrs

from klaw.convert import OMIT
from klaw.domain.knowledge import Block


@attrs.frozen(kw_only=True)
class Told:
    """A problem as the child tells it."""

    code: str
    text: str
    page: int | None = None


@attrs.frozen(kw_only=True)
class End:
    language: str
    pages: int
    failed: Annotated[Told | None, OMIT] = None
    """Why it counts as not read."""


@attrs.frozen(kw_only=True)
class Line:
    """One line of the child has one of these."""

    format: Annotated[str | None, OMIT] = None
    title: Annotated[str | None, OMIT] = None
    look: Annotated[int | None, OMIT] = None
    page: Annotated[int | None, OMIT] = None
    block: Annotated[Block | None, OMIT] = None
    problem: Annotated[Told | None, OMIT] = None
    end: Annotated[End | None, OMIT] = None
