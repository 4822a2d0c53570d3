"""Texts that topics are made of: what models read of a conversation, what gets a vector, names for what has none. Pure.
All is shown as data, one line a message: none can pretend to be another, nor the end of the conversation."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from klaw.domain import tokens
from klaw.domain.attachment import names_of
from klaw.domain.message import Message, MessageKind, Role, is_searchable
from klaw.domain.text import minute, one_line
from klaw.domain.topic import MAX_SUMMARY_CHARS

CAPS = (2_000, 1_000, 500, 250, 120)
"""Most characters of a message that a model is shown; the largest with which all fit."""
TOOL_CAP = 200
"""Most characters of a tool's call or result: what it was about, not what it brought."""
MAX_LOG_CHARS = 50_000

_GENERAL = {"en": "General conversation", "ru": "Общий разговор"}
_PART = {"en": "{summary} (part {number} of {total})", "ru": "{summary} (часть {number} из {total})"}

_GAP = " […] "


def render(messages: Sequence[Message], max_tokens: int) -> tuple[str, int]:
    """Messages as numbered lines, and how many fit: long ones are shortened, then the last ones left out."""
    for cap in CAPS:
        lines = [_line(number, message, cap) for number, message in enumerate(messages, 1)]
        if sum(tokens.estimate(line) + 1 for line in lines) <= max_tokens:
            return "\n".join(lines), len(lines)
    count = fitting(lines, max_tokens)
    return "\n".join(lines[:count]), count


def fitting(lines: Sequence[str], max_tokens: int) -> int:
    """How many lines fit, at least 1."""
    sums = accumulate(tokens.estimate(line) + 1 for line in lines)
    return max(1, sum(total <= max_tokens for total in sums))


def _line(number: int, message: Message, cap: int) -> str:
    return f"#{number} [{minute(message.created_at)}] {_speaker(message)}: {_shown(message, cap)}"


def _speaker(message: Message) -> str:
    match message.type:
        case MessageKind.TOOL_CALL:
            return "assistant, tool call (data)"
        case MessageKind.TOOL_RESULT:
            return "tool result (data)"
        case MessageKind.SCHEDULED:
            return "assistant, scheduled (data)"
        case _:
            return message.role.value


def _shown(message: Message, cap: int) -> str:
    if message.type is MessageKind.TOOL_CALL:
        names = ", ".join(str(call.get("name", "?")) for call in _calls(message))
        return middle_out(f"{names} {message.content}".strip() or "-", min(cap, TOOL_CAP))
    said = " ".join([message.content, *names_of(message.metadata)])
    return middle_out(said, min(cap, TOOL_CAP) if message.role is Role.TOOL else cap)


def _calls(message: Message) -> list[dict[str, object]]:
    found = message.metadata.get("calls")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def middle_out(text: str, cap: int) -> str:
    """A text as one line; of a long one its beginning and its end."""
    whole = len(text) <= 40 * cap  # of a far longer one not all is read
    line = one_line(text if whole else f"{text[: 20 * cap]} {text[-20 * cap :]}")
    if len(line) <= cap:
        return line
    head = cap * 2 // 3
    tail = max(0, cap - head - len(_GAP))
    return f"{line[:head]}{_GAP}{line[len(line) - tail :]}"


def embedding_text(summary: str, messages: Sequence[Message]) -> str:
    names = {Role.USER: "User", Role.ASSISTANT: "Assistant"}
    said = [
        f"[{names[message.role]}]: {message.content}"
        for message in messages
        if is_searchable(message.role, message.type)
    ]
    return f"Topic Summary: {summary}\n\nConversation Log:\n" + "\n".join(said)[:MAX_LOG_CHARS]


Language = Literal["en", "ru"]


def language(messages: Sequence[Message]) -> Language:
    """The language of the names that Klaw gives: Russian where most letters of what was said are Cyrillic."""
    cyrillic = latin = 0
    for message in messages:
        if is_searchable(message.role, message.type):
            for character in message.content[:500]:
                cyrillic += "а" <= character.lower() <= "я" or character in "ёЁ"
                latin += character.isascii() and character.isalpha()
    return "ru" if cyrillic > latin else "en"


def general_summary(messages: Sequence[Message]) -> str:
    return _GENERAL[language(messages)]


def part_summary(summary: str, number: int, total: int, messages: Sequence[Message]) -> str:
    base = shorten(summary, MAX_SUMMARY_CHARS - 40)
    return _PART[language(messages)].format(summary=base, number=number, total=total)


def has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def shorten(text: str, limit: int) -> str:
    """A text of at most so many characters, cut between words where that is possible."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut > limit // 2 else head).rstrip() + "…"
