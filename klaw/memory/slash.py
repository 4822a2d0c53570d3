"""The slash commands about memory, in words for a chat."""

from collections.abc import Awaitable

from klaw.domain.names import ChatId
from klaw.errors import ActorStopped, KlawError
from klaw.memory.slash_forget import YES, ForgetAnswers


class MemoryAnswers:
    """Carries out slash commands about memory, and words the answers. Never raises a KlawError: what goes wrong is said
    in the answer."""

    def __init__(self, forget: ForgetAnswers) -> None:
        self._forget = forget

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
