"""What the admin socket understands about changing topics. Pure."""

from typing import ClassVar, TypeAlias

import attrs

from klaw.admin.kinds import Fields, Limit, Whole


@attrs.frozen(kw_only=True)
class TopicsMerge:
    """Let the first of some topics take in the others."""

    command: ClassVar[str] = "topics_merge"
    deadline_s: ClassVar[float] = 60.0
    fields: Fields
    """``topics``: numbers of two or more; ``summary``: of the whole."""
    user: str | None = None


@attrs.frozen(kw_only=True)
class TopicsSplit:
    """Put several topics in the place of one."""

    command: ClassVar[str] = "topics_split"
    deadline_s: ClassVar[float] = 600.0
    topic: Whole
    fields: Fields
    """``at``: messages that begin a new topic; without any a model divides it."""
    user: str | None = None


@attrs.frozen(kw_only=True)
class TopicsRebuild:
    """Drop topics so that they are made anew, or say which."""

    command: ClassVar[str] = "topics_rebuild"
    deadline_s: ClassVar[float] = 60.0
    user: str | None = None
    chat: str | None = None
    """Its id, ``user:name``."""
    since: str | None = None
    dry_run: bool = True


@attrs.frozen(kw_only=True)
class TopicsHistory:
    """Changes of a user's topics, the newest first."""

    command: ClassVar[str] = "topics_history"
    deadline_s: ClassVar[float] = 10.0
    user: str | None = None
    topic: Whole | None = None
    """Only of this one; also one that is gone."""
    limit: Limit | None = None


@attrs.frozen(kw_only=True)
class TopicsUndo:
    """Take back a change of topics."""

    command: ClassVar[str] = "topics_undo"
    deadline_s: ClassVar[float] = 60.0
    user: str | None = None
    entry: Whole | None = None
    """Which one; default: the newest that a person asked for."""


OfTopicControl: TypeAlias = TopicsMerge | TopicsSplit | TopicsRebuild | TopicsHistory | TopicsUndo
