"""What chats may ask of tasks and runs: the interface behind their slash commands, which ``subagents.slash`` has."""

from typing import Protocol

from klaw.domain.names import ChatId, UserId


class TaskCommands(Protocol):
    """Carries out slash commands about tasks and runs, and words the answers. Never raises a KlawError: what goes wrong
    is said in the answer."""

    async def list_tasks(self, user: UserId) -> str:
        """The user's tasks: when they fire next, and how they ended last."""
        ...

    async def list_runs(self, user: UserId, task: str) -> str:
        """The user's last runs. ``task``: only this one's; empty for all."""
        ...

    async def cancel(self, user: UserId, which: str) -> str:
        """End a run. ``which``: its id, or the name of its task; empty for the only one that goes on."""
        ...

    async def heartbeat(self, chat: ChatId, rest: str) -> str:
        """Let the heartbeat speak in a chat; ``rest`` is what stood behind the command: ``off`` takes it back."""
        ...
