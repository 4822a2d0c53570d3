"""What chats may ask of memory: the interface behind their slash commands, which ``memory.slash`` has."""

from typing import Protocol

from klaw.domain.names import UserId


class MemoryCommands(Protocol):
    """Carries out slash commands about memory, and words the answers. Never raises a KlawError: what goes wrong is said
    in the answer."""

    async def show(self, user: UserId) -> str:
        """The user's core memory and facts, in short."""
        ...
