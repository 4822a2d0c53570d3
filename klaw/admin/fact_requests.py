"""What the admin socket understands about facts. Pure.

Each is about one user's; without ``user`` it is ``local``.
"""

from typing import ClassVar, TypeAlias

import attrs

from klaw.admin.kinds import Fields, Limit, Whole


@attrs.frozen(kw_only=True)
class FactList:
    """A user's facts, the most important first."""

    command: ClassVar[str] = "fact_list"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    category: str | None = None
    limit: Limit | None = None
    page: Whole | None = None


@attrs.frozen(kw_only=True)
class FactAdd:
    """Keep a statement, unless it is kept already."""

    command: ClassVar[str] = "fact_add"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    fields: Fields


@attrs.frozen(kw_only=True)
class FactEdit:
    """Change the given fields of a fact."""

    command: ClassVar[str] = "fact_edit"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    fact: str
    fields: Fields


@attrs.frozen(kw_only=True)
class FactDelete:
    """Remove a fact. Its history stays."""

    command: ClassVar[str] = "fact_delete"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    fact: str


@attrs.frozen(kw_only=True)
class FactHistory:
    """All that a fact was, the oldest first."""

    command: ClassVar[str] = "fact_history"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    fact: str


@attrs.frozen(kw_only=True)
class FactUndo:
    """Take back a fact's newest change, or all after an entry of its history."""

    command: ClassVar[str] = "fact_undo"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    fact: str
    entry: Whole | None = None


OfFacts: TypeAlias = FactList | FactAdd | FactEdit | FactDelete | FactHistory | FactUndo
"""Requests about facts."""
