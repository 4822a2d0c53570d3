"""What a forgetting would do, and did."""

from collections.abc import Mapping

import attrs

from klaw.domain.forget import Thing
from klaw.domain.message import Message
from klaw.store.forget.applying import Look
from klaw.store.forget.derived import FileMade
from klaw.store.forget.logs import Held
from klaw.store.forget.quoting import Looked, Named
from klaw.store.forget.scope import Scope, Wanted


@attrs.frozen(kw_only=True)
class Preview:
    """What a forgetting would do, or did."""

    look: Look
    things: tuple[Thing, ...] = ()
    """What goes and what stays, in words."""
    files: tuple[FileMade, ...] = ()
    """Of the workspace, that tools wrote; also such as are not there any more."""
    again: tuple[Message, ...] = ()
    """Messages that say it too and stay, the first of them."""
    held: tuple[Held, ...] = ()
    """Files that hold it now; for the operator, who alone may know what a file that all users share holds."""
    aside: tuple[Held, ...] = ()
    """Databases and other files of before; for the operator."""
    named: Named | None = None
    """Of a person: what names it."""
    naming: tuple[Message, ...] = ()
    """Of a person: messages that name it and stay, the first of them."""

    @property
    def scope(self) -> Scope:
        return self.look.scope

    @property
    def looked(self) -> Looked:
        """What quotes it."""
        return self.look.looked


@attrs.frozen(kw_only=True)
class Proof:
    """What a forgetting did."""

    before: Preview
    entry: int
    """Its number in the memory journal."""
    lines: int
    """Lines of logs that were rewritten."""
    after: Looked
    """What still quotes it."""
    vacuumed: bool = False
    """Whether the database file was rebuilt, because its free space still held the text."""
    held: tuple[Held, ...] = ()
    """Files that still hold it; for the operator."""
    still_named: Mapping[str, int] = attrs.field(factory=dict)
    """Of a person: how many rows of each kind still name it."""


@attrs.frozen(kw_only=True)
class Cleaned:
    """What is left of something that was taken out of the database."""

    lines: int
    """Lines of logs that were rewritten."""
    vacuumed: bool = False
    held: tuple[Held, ...] = ()
    """Files that still hold it; for the operator."""
    aside: tuple[Held, ...] = ()
    """Databases and other files of before; for the operator."""


@attrs.frozen
class Shown:
    """What a chat was shown, and can confirm."""

    wanted: Wanted
    with_facts: bool
    until: float
    """Unix seconds."""
