"""Asking an operation over parts, also in a chat, and what a terminal shows of a search."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from klaw.actor.clock import Clock
from klaw.cli.main import main
from klaw.cli.output import written
from klaw.domain.names import ChatId
from klaw.memory.forget.forget import Forgetter
from klaw.operations.explain import receipt_text
from klaw.operations.handler import OPERATOR, Parts
from klaw.operations.lines import with_commands
from klaw.operations.memory import search
from klaw.operations.perform import operations, perform, read, read_call
from klaw.operations.slash import OperationCommands
from tests.support.admin import Commands


async def ask(commands: Commands, command: str, **args: Any) -> dict[str, Any]:
    """What the admin socket answers."""
    return await commands.run(read_call(command, args))


async def ask_operation(name: str, parts: Parts, **args: Any) -> dict[str, Any]:
    """What whoever runs the server is answered."""
    return await perform(read(operations()[name], args), OPERATOR, parts)


def klaw_here(home: Path, *words: str) -> int:
    """A command in this process: its exit code."""
    return main([*words, "--home", str(home)])


def receipt_lines(answer: Mapping[str, Any]) -> list[str]:
    """What ``klaw receipt`` prints of an answer."""
    return written(receipt_text.lines(answer))


def search_lines(answer: dict[str, Any], *, more: str | None = None, bold: bool = False) -> list[str]:
    """What ``klaw search`` prints of an answer; ``more``: the command for the next page."""
    lines, _ = with_commands(search.show(answer if more else {**answer, "next": None}), lambda **_page: more or "")
    return written(lines, bold=bold)


def parts_to_forget(forgetter: Forgetter, clock: Clock | None = None) -> Any:
    """What forgetting takes of the parts of a server."""
    return SimpleNamespace(memory=SimpleNamespace(forgetter=forgetter), readers=forgetter.readers, clock=clock)


def forgetting_in(forgetter: Forgetter, clock: Clock) -> Callable[[ChatId, str], Awaitable[str]]:
    """``/forget`` of chats, without a server."""
    commands = OperationCommands()
    commands.parts = parts_to_forget(forgetter, clock)

    async def stop(_reason: str) -> bool:
        return False

    async def tell(chat: ChatId, rest: str) -> str:
        return (await commands.run("/forget", chat, rest, stop)).text

    return tell
