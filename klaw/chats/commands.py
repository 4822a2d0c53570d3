"""Slash commands: recognising them and wording the answers. Pure."""

import difflib
import enum
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

import attrs

from klaw.domain.message import NewMessage
from klaw.domain.names import ChatId

ALIKE = 0.9
"""How similar a mistyped word is to its command, by difflib's measure: one letter is missing or doubled."""


MAX_WORD = 32


class Command(enum.StrEnum):
    NEW = "/new"
    STOP = "/stop"
    RETRY = "/retry"
    EDIT = "/edit"
    REGENERATE = "/regenerate"
    HELP = "/help"


_MEANING: Mapping[str, str] = {
    Command.NEW: "start fresh: earlier messages are kept, but no longer recalled automatically",
    Command.STOP: "stop the current answer",
    Command.RETRY: "retry what has no answer yet",
    Command.EDIT: "say something else in place of your last message: /edit What is the capital of Peru?",
    Command.REGENERATE: "have your last message answered again; /regenerate PROVIDER/MODEL by another model",
    Command.HELP: "show this list",
}


@attrs.frozen
class UnknownCommand:
    word: str


@attrs.frozen
class SlashCommand:
    """A command with what stands behind it, without outer spaces. Commands that take nothing ignore it."""

    command: str
    rest: str = ""


def parse(text: str, others: Collection[str] = ()) -> SlashCommand | UnknownCommand | None:
    """The command of a message; None for an ordinary message. ``others``: commands of other parts.

    Only a single word of letters after the slash counts, so that paths ("/etc/hosts is …") stay messages. With more
    behind it, a word that is not a command is a message, unless it is mistyped: a model would only say that it obeyed.
    """
    word, _, rest = text.strip().partition(" ")
    if not word.startswith("/") or not word[1:].isalpha():
        return None
    lowered = word.lower()
    known = lowered in set(Command) or lowered in others
    mistyped = len(lowered) <= MAX_WORD and _close(lowered, others, cutoff=ALIKE)
    if rest and not known and not mistyped:
        return None
    return SlashCommand(lowered, rest.strip()) if known else UnknownCommand(lowered)


def _close(word: str, others: Collection[str], cutoff: float = 0.6) -> list[str]:
    return difflib.get_close_matches(word, [*map(str, Command), *others], n=1, cutoff=cutoff)


def meanings(others: Mapping[str, str]) -> dict[str, str]:
    """What each command does; ``/help`` is the last."""
    found = {str(word): text for word, text in {**_MEANING, **others}.items()}
    last = found.pop(Command.HELP)
    return {**found, str(Command.HELP): last}


def help_text(others: Mapping[str, str]) -> str:
    return "\n".join(["Commands:", *(f"  {word:<10} {meaning}" for word, meaning in meanings(others).items())])


def unknown_text(unknown: UnknownCommand, others: Collection[str] = ()) -> str:
    word = unknown.word[:MAX_WORD]
    close = _close(word, others)
    return f"There is no command {word}.{f' Did you mean {close[0]}?' if close else ''} /help lists all commands."


@attrs.frozen
class SlashAnswer:
    text: str
    metadata: dict[str, Any] = attrs.Factory(dict)
    before: tuple[NewMessage, ...] = ()


class SlashCommands(Protocol):
    """Slash commands that are not about the chat's own turns."""

    @property
    def meanings(self) -> Mapping[str, str]: ...

    async def run(self, word: str, chat: ChatId, rest: str, stop: Callable[[str], Awaitable[bool]]) -> SlashAnswer:
        """Carry out one of ``meanings``, with what stands behind it. Never raises a KlawError: the answer says what
        went wrong. ``stop`` ends the chat's running turn, for the reason given."""
        ...
