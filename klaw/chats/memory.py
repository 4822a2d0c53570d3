"""What chats may ask of memory: the interface behind their slash commands, which ``memory.slash`` has."""

from typing import Protocol

from klaw.domain.names import ChatId, UserId


class MemoryCommands(Protocol):
    """Carries out slash commands about memory, and words the answers. Never raises a KlawError: what goes wrong is said
    in the answer."""

    async def topics(self, user: UserId, query: str) -> str:
        """The user's newest topics, or those that fit a query; empty for none."""
        ...

    async def people(self, user: UserId, name: str) -> str:
        """The people the user speaks of, or who one of this name is; empty for none."""
        ...

    async def forget(self, chat: ChatId, rest: str) -> str:
        """Show what would be forgotten, or forget what was shown; ``rest`` is what stood behind the command."""
        ...

    def confirms(self, rest: str) -> bool:
        """Whether ``forget`` would forget something now, not only show it."""
        ...
