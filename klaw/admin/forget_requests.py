"""What the admin socket understands about forgetting. Pure."""

from typing import ClassVar

import attrs


@attrs.frozen(kw_only=True)
class Forget:
    """Forget a message, a topic, a fact or a person, or say what that would do."""

    command: ClassVar[str] = "forget"
    deadline_s: ClassVar[float] = 600.0
    what: str
    """A message's id or ``main#12``, ``topic:12``, ``fact:ID``, ``person:ID`` or ``person:NAME``."""
    user: str | None = None
    dry_run: bool = True
    with_facts: bool = False
    with_messages: bool = False
    """Of a person: also the messages that name it."""
