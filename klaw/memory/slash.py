"""The slash commands about memory, in words for a chat; ``/memory`` here: core memory and the most important facts."""

from collections.abc import Awaitable

from klaw.domain import core_memory
from klaw.domain.fact import Fact
from klaw.domain.names import ChatId, UserId
from klaw.errors import ActorStopped, CoreUnreadable, KlawError
from klaw.memory.people_slash import PeopleAnswers
from klaw.memory.slash_forget import YES, ForgetAnswers
from klaw.memory.topics.slash import TopicAnswers
from klaw.store.core_files import read_core
from klaw.store.readers import Readers
from klaw.store.sql import facts

SHOWN_FACTS = 20
MAX_LINE = 200
"""Characters of a fact that are shown."""


class MemoryAnswers:
    """Implements ``chats.memory.MemoryCommands``."""

    def __init__(self, readers: Readers, topics: TopicAnswers, forget: ForgetAnswers) -> None:
        self._readers = readers
        self._topics = topics
        self._people = PeopleAnswers(readers)
        self._forget = forget

    async def show(self, user: UserId) -> str:
        """See ``MemoryCommands.show``."""
        try:
            core = await self._core(user)
            shown = await self._readers.run(facts.of_user, user, limit=SHOWN_FACTS)
            total = await self._readers.run(facts.count, user)
        except KlawError as error:
            return f"Memory cannot be read: {error}."
        return "\n".join([*core, *_facts(shown, total)])

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

    async def _core(self, user: UserId) -> list[str]:
        try:
            document = await self._readers.run(read_core, user)
        except CoreUnreadable as error:
            return [f"Core memory: {error}."]
        if not document:
            return ["Core memory is empty."]
        return ["Core memory, in every context:", *(f"  {line}" for line in core_memory.render(document).split("\n"))]


async def _told(answer: Awaitable[str]) -> str:
    """The answer, or what went wrong."""
    try:
        return await answer
    except ActorStopped:
        return "The store does not answer now: try again a little later."
    except KlawError as error:
        return f"That did not work: {error}."


def _facts(shown: list[Fact], total: int) -> list[str]:
    if not shown:
        return ["No facts are kept."]
    lines = [f"  {fact.id}  {fact.importance:>3}  {fact.category}: {_short(fact.text)}" for fact in shown]
    more = [f"  … and {total - len(shown)} more; `klaw facts list` shows all."] if total > len(shown) else []
    return ["Facts, the most important first:", *lines, *more]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
