"""The slash command ``/memory``, in words for a chat: core memory and the most important facts. Only reads."""

from klaw.domain import core_memory
from klaw.domain.fact import Fact
from klaw.domain.names import UserId
from klaw.errors import CoreUnreadable, KlawError
from klaw.store.core_files import read_core
from klaw.store.readers import Readers
from klaw.store.sql import facts

SHOWN_FACTS = 20
MAX_LINE = 200
"""Characters of a fact that are shown."""


class MemoryAnswers:
    """Implements ``chats.memory.MemoryCommands``."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def show(self, user: UserId) -> str:
        """See ``MemoryCommands.show``."""
        try:
            core = await self._core(user)
            shown = await self._readers.run(facts.of_user, user, limit=SHOWN_FACTS)
            total = await self._readers.run(facts.count, user)
        except KlawError as error:
            return f"Memory cannot be read: {error}."
        return "\n".join([*core, *_facts(shown, total)])

    async def _core(self, user: UserId) -> list[str]:
        try:
            document = await self._readers.run(read_core, user)
        except CoreUnreadable as error:
            return [f"Core memory: {error}."]
        if not document:
            return ["Core memory is empty."]
        return ["Core memory, in every context:", *(f"  {line}" for line in core_memory.render(document).split("\n"))]


def _facts(shown: list[Fact], total: int) -> list[str]:
    if not shown:
        return ["No facts are kept."]
    lines = [f"  {fact.id}  {fact.importance:>3}  {fact.category}: {_short(fact.text)}" for fact in shown]
    more = [f"  … and {total - len(shown)} more; `klaw facts list` shows all."] if total > len(shown) else []
    return ["Facts, the most important first:", *lines, *more]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
