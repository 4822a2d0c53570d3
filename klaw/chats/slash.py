"""What chats may ask of the rest of Klaw by slash commands; ``operations.slash`` has it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import attrs

from klaw.domain.names import ChatId


@attrs.frozen
class SlashAnswer:
    """What a slash command answers."""

    text: str
    quotes: bool = False
    """It quotes parts of what is stored, so it goes with what is forgotten next."""


class SlashCommands(Protocol):
    """Slash commands that are not about the chat's own turns."""

    @property
    def meanings(self) -> Mapping[str, str]:
        """The words with their slash, and one line of help for each."""
        ...

    async def run(self, word: str, chat: ChatId, rest: str, stop: Callable[[str], Awaitable[bool]]) -> SlashAnswer:
        """Carry one out. Never raises a KlawError: what goes wrong is said in the answer.

        Args:
            word: one of ``meanings``.
            chat: where it was given; only its user's data is touched.
            rest: what stands behind the word.
            stop: ends the chat's running turn, for the reason given.
        """
        ...
