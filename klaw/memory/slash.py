"""The slash commands about memory, in words for a chat."""

from collections.abc import Awaitable

from klaw.domain.names import ChatId, UserId
from klaw.errors import ActorStopped, KlawError
from klaw.memory.people_slash import PeopleAnswers
from klaw.memory.slash_forget import YES, ForgetAnswers
from klaw.memory.topics.slash import TopicAnswers
from klaw.store.readers import Readers


class MemoryAnswers:
    """Implements ``chats.memory.MemoryCommands``."""

    def __init__(self, readers: Readers, topics: TopicAnswers, forget: ForgetAnswers) -> None:
        self._topics = topics
        self._people = PeopleAnswers(readers)
        self._forget = forget

    async def topics(self, user: UserId, query: str) -> str:
        """See ``MemoryCommands.topics``."""
        return await _told(self._topics.tell(user, query))

    async def people(self, user: UserId, name: str) -> str:
        """See ``MemoryCommands.people``."""
        return await _told(self._people.tell(user, name))

    async def forget(self, chat: ChatId, rest: str) -> str:
        """See ``MemoryCommands.forget``."""
        return await _told(self._forget.tell(chat, rest))

    def confirms(self, rest: str) -> bool:
        """See ``MemoryCommands.confirms``."""
        return rest.strip().casefold() in YES


async def _told(answer: Awaitable[str]) -> str:
    """The answer, or what went wrong."""
    try:
        return await answer
    except ActorStopped:
        return "The store does not answer now: try again a little later."
    except KlawError as error:
        return f"That did not work: {error}."
