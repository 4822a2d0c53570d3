"""Marks that ChatGPT puts into texts for its own page, such as citations: what its user sees in their place."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MARK = re.compile(
    r"( ?)(\ue200[^\ue200\ue201]*\ue201|【[^【】\n]{1,200}】|:contentReference\[oaicite:\d+\](?:\{index=\d+\})?"
    r"|(?:file)?cite(?:turn\d{1,4}[a-z]{1,20}\d{1,4})+)"
)
_REST = re.compile(r" ?\ue200\w{0,20}(?:\ue202[^\s\ue200-\ue20f]*)*|[\ue200-\ue20f]")
"""What is left of damaged ones."""
_REFERENCE = re.compile(r"turn\d+\w+")
_WRITING = re.compile(r"^:::(?:writing\{[^}\n]*\})?[ \t]*(?:\n|\Z)", re.MULTILINE)


def unmarked(text: str, references: Any = None) -> str:
    """A text as its user sees it: with the links, and without the marks.

    Args:
        text: of a message.
        references: its ``content_references``, if it has any: each with a mark and what is shown for it.
    """
    shown = {}
    for each in references if isinstance(references, list) else ():
        if isinstance(each, dict) and isinstance(alt := each.get("alt"), str):
            shown[str(each.get("matched_text"))] = alt
    text = _REST.sub("", _MARK.sub(lambda found: _placed(found[1], found[2], shown), text))
    return _WRITING.sub("", text) if ":::writing{" in text else text


def _placed(space: str, mark: str, shown: Mapping[str, str]) -> str:
    words = shown.get(mark)
    if not words and mark[0] == "\ue200":
        words = _words(mark[1:-1])
    elif words is None and mark[0] == "【" and not re.search(r"†|turn\d", mark):  # so some languages quote
        words = mark
    return f"{space}{words}" if words else ""


def _words(mark: str) -> str:
    """The words that a mark carries: a name, a heading, the text of a link."""
    kind, *arguments = mark.split("\ue202")
    return "" if "cite" in kind else " ".join(filter(None, _arguments(arguments)))


def _arguments(given: Iterable[str]) -> Iterator[str]:
    for each in map(str.strip, given):
        if each.startswith(("[", "{")):
            try:
                values = json.loads(each)
            except (ValueError, RecursionError):
                continue
            if isinstance(values, list) and len(values) > 1 and all(isinstance(value, str) for value in values):
                yield values[1]  # an entity: its kind, its name, what tells it from others
        elif not _REFERENCE.fullmatch(each):
            yield each
