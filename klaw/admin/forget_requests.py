"""What the admin socket understands about forgetting and topics. Pure."""

from typing import ClassVar

import attrs

from klaw.admin.kinds import Limit


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


@attrs.frozen(kw_only=True)
class TopicsList:
    """A user's topics, the last talked about first."""

    command: ClassVar[str] = "topics_list"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    chat: str | None = None
    """Its id, ``user:name``."""
    limit: Limit | None = None


@attrs.frozen(kw_only=True)
class TopicsShow:
    """One topic with its messages."""

    command: ClassVar[str] = "topics_show"
    deadline_s: ClassVar[float] = 10.0
    topic: str
    user: str | None = None
