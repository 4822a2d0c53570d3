"""What the admin socket understands about people. Pure.

Each is about one user's; without ``user`` it is ``local``. ``person`` is an id, a name or an alias.
"""

from typing import ClassVar, TypeAlias

import attrs

from klaw.admin.kinds import Fields, Limit, Whole


@attrs.frozen(kw_only=True)
class PersonList:
    """A user's people, those named in the most topics first."""

    command: ClassVar[str] = "person_list"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    limit: Limit | None = None
    page: Whole | None = None


@attrs.frozen(kw_only=True)
class PersonShow:
    """One person with the topics that name it."""

    command: ClassVar[str] = "person_show"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    person: str


@attrs.frozen(kw_only=True)
class PersonAdd:
    """Keep a person. ``fields``: name, aliases, relation."""

    command: ClassVar[str] = "person_add"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    fields: Fields


@attrs.frozen(kw_only=True)
class PersonEdit:
    """Change the given fields of a person: name, relation, add_aliases, remove_aliases."""

    command: ClassVar[str] = "person_edit"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    person: str
    fields: Fields


@attrs.frozen(kw_only=True)
class PersonMerge:
    """Say that a person is another one."""

    command: ClassVar[str] = "person_merge"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    person: str
    into: str


@attrs.frozen(kw_only=True)
class PersonDelete:
    """Remove a person. Its history stays."""

    command: ClassVar[str] = "person_delete"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    person: str


@attrs.frozen(kw_only=True)
class PersonHistory:
    """All that a person was, the oldest first."""

    command: ClassVar[str] = "person_history"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    person: str


@attrs.frozen(kw_only=True)
class PersonUndo:
    """Take back a person's newest change, or all after an entry of its history."""

    command: ClassVar[str] = "person_undo"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    person: str
    entry: Whole | None = None


OfPeople: TypeAlias = (
    PersonList | PersonShow | PersonAdd | PersonEdit | PersonMerge | PersonDelete | PersonHistory | PersonUndo
)
"""Requests about people."""
