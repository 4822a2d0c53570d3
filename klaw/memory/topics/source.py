"""What facts and people are drawn from."""

import attrs

from klaw.domain.names import UserId
from klaw.domain.topic import TopicId


@attrs.frozen(kw_only=True)
class Source:
    """A topic or a day of a user."""

    user: UserId
    topic: TopicId | None = None
    day: str | None = None
    """Its date."""

    @property
    def name(self) -> str:
        """What a person's mention is noted with: the topic's id, or the day."""
        return str(self.topic) if self.topic is not None else f"day {self.day}"
