"""Slash commands: recognising them and wording the answers. Pure."""

import difflib
import enum
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import attrs

from klaw.domain.names import ChatId
from klaw.domain.text import plural


class Command(enum.StrEnum):
    """What a message that begins with a slash can ask for."""

    NEW = "/new"
    STOP = "/stop"
    RETRY = "/retry"
    STATUS = "/status"
    CONTEXT = "/context"
    MODEL = "/model"
    MODELS = "/models"
    HELP = "/help"


_MEANING: Mapping[str, str] = {
    Command.NEW: "begin a new segment: what was said before is kept, but no longer recalled automatically",
    Command.STOP: "stop the answer that is being made",
    Command.RETRY: "try again to answer what has no answer yet",
    Command.STATUS: "show what this chat and the server do now",
    Command.CONTEXT: "show what the last answer was made from",
    Command.MODEL: "show this chat's model; /model NAME changes it, /model default takes it back",
    Command.MODELS: "list the models with their context length and prices",
    Command.HELP: "show this list",
}


@attrs.frozen
class Unknown:
    """A message that looks like a command and is none."""

    word: str


@attrs.frozen
class Given:
    """A command with what stands behind it, without surrounding spaces. Commands that take nothing ignore it."""

    command: str
    rest: str = ""


def parse(text: str, others: Collection[str] = ()) -> Given | Unknown | None:
    """The command of a message; None for an ordinary message. ``others``: commands of other parts.

    Only a single word of letters after the slash counts, so that paths ("/etc/hosts is …") stay messages.
    """
    word, _, rest = text.strip().partition(" ")
    if not word.startswith("/") or not word[1:].isalpha():
        return None
    lowered = word.lower()
    known = lowered in set(Command) or lowered in others
    if rest and not known:
        return None
    return Given(lowered, rest.strip()) if known else Unknown(lowered)


def help_text(others: Mapping[str, str]) -> str:
    """The list of commands; ``others``: those of other parts with their meanings."""
    meanings = {**_MEANING, **others}
    last = meanings.pop(Command.HELP)
    return "\n".join(
        ["Commands:", *(f"  {word:<10} {meaning}" for word, meaning in [*meanings.items(), (Command.HELP, last)])]
    )


def unknown_text(unknown: Unknown, others: Collection[str] = ()) -> str:
    word = unknown.word[:32]
    close = difflib.get_close_matches(word, [*map(str, Command), *others], n=1)
    return f"There is no command {word}.{f' Did you mean {close[0]}?' if close else ''} /help lists all commands."


def status_text(chat: Mapping[str, Any], health: Mapping[str, Any]) -> str:
    """Word the status of a chat and of the server."""
    lines = [
        f"Chat {chat['name']}: {chat['state']}, {plural(chat['messages'], 'message')}, segment {chat['segment'] + 1}.",
        f"Model: {chat['model']}.",
    ]
    lines += [f"Degraded: {text}" for text in health.values()] or ["Everything works."]
    return "\n".join(lines)


def context_text(receipt: Mapping[str, Any] | None) -> str:
    """Word a receipt in a few lines."""
    if receipt is None:
        return "Nothing was answered in this chat yet."
    if "window" not in receipt:
        return "No context was put together for the last turn: it was stopped, or failed, before that."
    window, recall, budget = receipt["window"], receipt["recall"], receipt["budget"]
    factor = budget["correction"]  # of Klaw's estimate; the person knows the model's own tokens
    used, usable = (round(budget[name] * factor) for name in ("used_tokens", "usable_tokens"))
    lines = [f"The last answer was made from {used} of {usable} tokens:"]
    lines += [f"  {layer['name']:<13} {round(layer['tokens'] * factor):>6}" for layer in receipt["layers"]]
    if window["messages"]:
        lines.append(f"Window: messages {window['first_seq']} to {window['last_seq']}.")
    lines.append(_recall_text(recall))
    if "topics" in receipt:
        lines.append(_topics_text(receipt["topics"]))
    return "\n".join(lines)


def _topics_text(topics: Mapping[str, Any]) -> str:
    shown = sorted(
        (each for each in topics["candidates"] if each["decision"] == "chosen"), key=lambda each: each["place"]
    )
    if not shown:
        return "Topics: none fitted."
    named = ", ".join(str(each["id"]) for each in shown)
    return f"Topics: {named}, chosen by the {topics['chosen_by']}; /topics lists them."


def _recall_text(recall: Mapping[str, Any]) -> str:
    if recall["guard"] == "disabled":
        return "Recall is switched off."
    if recall["guard"] == "all_in_context":
        return "Nothing had to be recalled: the whole segment was in the window."
    degraded = f" (degraded: {', '.join(recall['degraded'])})" if recall["degraded"] else ""
    kept: Sequence[int] = recall["kept"]
    if not kept:
        return f"Recalled: nothing relevant{degraded}."
    return f"Recalled: messages {', '.join(map(str, kept))}{degraded}."


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
