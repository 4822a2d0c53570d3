"""The slash commands about memory, in words for a chat."""

from collections.abc import Awaitable

from klaw.domain.names import ChatId, UserId
from klaw.errors import ActorStopped, KlawError
from klaw.memory.people_slash import PeopleAnswers
from klaw.memory.slash_forget import YES, ForgetAnswers
from klaw.memory.topics.slash import TopicAnswers
from klaw.store.readers import Readers


class MemoryAnswers:
    """Carries out slash commands about memory, and words the answers. Never raises a KlawError: what goes wrong is said
    in the answer."""

    def __init__(self, readers: Readers, topics: TopicAnswers, forget: ForgetAnswers) -> None:
        self._topics = topics
        self._people = PeopleAnswers(readers)
        self._forget = forget

    async def topics(self, user: UserId, query: str) -> str:
        """The user's newest topics, or those that fit a query."""
        return await _told(self._topics.tell(user, query))

    async def people(self, user: UserId, name: str) -> str:
        """The people the user speaks of, or who one of this name is."""
        return await _told(self._people.tell(user, name))

    async def forget(self, chat: ChatId, rest: str) -> str:
        """Show what would be forgotten, or forget what was shown; ``rest`` is what stood behind the command."""
        return await _told(self._forget.tell(chat, rest))

    def confirms(self, rest: str) -> bool:
        """Whether ``forget`` would forget something now, not only show it."""
        return rest.strip().casefold() in YES


async def _told(answer: Awaitable[str]) -> str:
    """The answer, or what went wrong."""
    try:
        return await answer
    except ActorStopped:
        return "The store does not answer now: try again a little later."
    except KlawError as error:
        return f"That did not work: {error}."
