"""A chat as a document, in parts that follow each other: Markdown for people, JSON for programs. Pure.

What anybody said stands in a block of its own (a quotation, or fenced code), so that none of it can look like a line of
the document. Calls of tools and their results are folded.
"""

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from klaw.domain.attachment import files_of
from klaw.domain.message import ECHO, Message, MessageKind, Role
from klaw.domain.text import one_line
from klaw.store.rows import dumps

Format: TypeAlias = Literal["markdown", "json"]

_AUTHORS = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.TOOL: "Tool", Role.SYSTEM: "Klaw"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_MARKUP = re.compile(r"([\\`*_\[\]<>&#])")


def part(form: Format, chat: Mapping[str, Any], said: Iterable[Message], *, first: bool, last: bool) -> str:
    """One part: the next messages of a chat (``chat``: its id; ``name``; ``title``), if there are any. ``first``,
    ``last``: whether it begins or ends the document."""
    if form == "markdown":
        head = f"# {escaped(chat['title'] or chat['name'])}\n\nChat {escaped(chat['name'])}; times are UTC.\n"
        return (head if first else "") + "".join(map(_markdown, said))
    about = dumps({name: chat[name] for name in ("chat", "name", "title")})
    lines = ",\n".join(dumps(_json(each)) for each in said)
    comma = ",\n" if lines else ""
    return (f'{about[:-1]},"messages":[\n' if first else comma) + lines + ("\n]}\n" if last else "")


def _json(message: Message) -> dict[str, Any]:
    names = ("seq", "id", "role", "type", "content", "created_at", "segment", "metadata")
    told = {name: getattr(message, name) for name in names}
    return {**told, "metadata": {name: value for name, value in message.metadata.items() if name != ECHO}}


def escaped(text: str) -> str:
    """A text in which nothing is Markdown."""
    return _MARKUP.sub(r"\\\1", text)


def _markdown(message: Message) -> str:
    at = message.created_at[:16].replace("T", " ")
    if message.type is MessageKind.SESSION_BREAK:
        return f"\n---\n\n*A new segment · {at}*\n"
    about = f"{at} · #{message.seq}"
    if message.type is MessageKind.TOOL_RESULT:
        failed = " failed" if message.metadata.get("error") else ""
        return _folded(f"Result of {message.metadata.get('name', 'a tool')}{failed} · {about}", message.content)
    task = message.metadata.get("task")
    author = _AUTHORS[message.role] + (f", task {task}" if task else "")
    files = ", ".join(escaped(each.name) for each in files_of(message.metadata))
    parts = [_quoted(message.content)] if message.content else []
    parts += [f"Files: {files}"] if files else []
    calls = message.metadata.get("calls", ()) if message.type is MessageKind.TOOL_CALL else ()
    folded = [_folded(f"Call of {call.get('name')} · {about}", str(call.get("arguments"))) for call in calls]
    said = "\n\n".join([f"**{author}** · {about}", *parts])
    return (f"\n{said}\n" if parts else "") + "".join(folded)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in _LINE_END.split(text))


def _folded(head: str, text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    summary = html.escape(one_line(head), quote=False)
    return f"\n<details><summary>{summary}</summary>\n\n{fence}\n{text}\n{fence}\n\n</details>\n"
