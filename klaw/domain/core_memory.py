"""Core memory: the few lines about a user that stand in every context. Pure.

A JSON object of sections. Tools write sections that are objects of texts; lists and plain texts, which a person may
use, they leave as they are."""

import json
from typing import Any, TypeAlias

from klaw.domain import tokens
from klaw.domain.text import clean_output, hanging, one_line
from klaw.errors import InvalidValue

Document: TypeAlias = dict[str, Any]

MAX_TOKENS = 500
"""Estimated, when rendered: it is paid for in every turn."""
MAX_NAME = 64
MAX_VALUE = 1_000
MAX_BYTES = 256 * 1024


def parse(data: bytes) -> Document:
    """The document of a file; empty for an empty file. Raises ValueError for a malformed one."""
    if len(data) > MAX_BYTES:
        raise ValueError("too large")
    text = data.decode("utf-8")
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("core memory must be a JSON object")  # noqa: TRY004 - one error class for malformed files
    return found


def dump(document: Document) -> bytes:
    return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "surrogatepass")


def updated(document: Document, section: str, key: str, value: str) -> Document:
    """The document with a value added or replaced. Raises InvalidValue, which says why."""
    section, key, value = _line("section", section), _line("key", key), _line("value", value, MAX_VALUE)
    present = document.get(section, {})
    if not isinstance(present, dict):
        raise InvalidValue("section: a person wrote it as a list or a text; use another section")
    changed = {**document, section: {**present, key: value}}
    used = tokens.estimate(render(changed))
    if used > MAX_TOKENS and used > tokens.estimate(render(document)):
        raise InvalidValue(
            f"core memory is full: it has room for {MAX_TOKENS} tokens, and this would make {used}; shorten or delete"
            " what matters less, or use memory_save"
        )
    return changed


def removed(document: Document, section: str, key: str | None) -> Document:
    """The document without a value or a section; a section that becomes empty goes too. Raises InvalidValue."""
    section = _line("section", section)
    if section not in document:
        raise InvalidValue(f"section: there is no such section; core memory has: {_listed(document)}")
    present = document[section]
    others = {name: content for name, content in document.items() if name != section}
    if key is None:
        return others
    key = _line("key", key)
    if not isinstance(present, dict):
        raise InvalidValue("key: the section has no keys; without a key it is deleted as a whole")
    if key not in present:
        raise InvalidValue(f"key: the section has none of that name; it has: {_listed(present)}")
    left = {name: content for name, content in present.items() if name != key}
    return {name: left if name == section else content for name, content in document.items() if name != section or left}


def render(document: Document) -> str:
    """Core memory as lines ``- key: value`` below their section."""
    lines: list[str] = []
    for section, content in document.items():
        if isinstance(content, dict):
            lines += [
                f"[{one_line(section)}]",
                *(f"- {one_line(key)}: {_plain(item)}" for key, item in content.items()),
            ]
        elif isinstance(content, list):
            lines += [f"[{one_line(section)}]", *(f"- {_plain(item)}" for item in content)]
        else:
            lines.append(f"- {one_line(section)}: {_plain(content)}")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return hanging(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _line(field: str, text: str, most: int = MAX_NAME) -> str:
    line = one_line(clean_output(text))
    if not 1 <= len(line) <= most:
        raise InvalidValue(f"{field}: has 1 to {most} characters")
    return line


def _listed(names: Document) -> str:
    return ", ".join(list(names)[:20]) or "nothing"
