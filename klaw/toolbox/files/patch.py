"""Search-and-replace edits of a text. Pure.

An edit applies only where its search text occurs exactly once: what the model did not name clearly is not changed.
"""

import difflib
from collections.abc import Sequence
from typing import Annotated

import attrs

from klaw.toolbox.files.names import FileRefused

MAX_LINES_COMPARED = 20_000
MAX_LINE_CHARS = 400
"""Of each line as many characters are compared; both bound the time that a failed search may take."""
_CONTEXT_LINES = 2
_SIMILAR = 0.6


@attrs.frozen(kw_only=True)
class Edit:
    """Replace the one place that has ``search``."""

    search: Annotated[str, "text that is in the file exactly once; whole lines are best"]
    replace: Annotated[str, "what stands there afterwards"]


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text after all edits, one after the other. Line ends of the text are kept: in a text with CRLF, the edits'
    line ends become CRLF too.

    Raises:
        FileRefused: an edit's search text is empty, missing, or there more than once; nothing is changed then.
    """
    if not edits:
        raise FileRefused("edits: the list is empty")
    crlf = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    for number, edit in enumerate(edits, 1):
        search, replace = (_with_ends(part, crlf=crlf) for part in (edit.search, edit.replace))
        which = f"edit {number} of {len(edits)}"
        if not search:
            raise FileRefused(f"{which}: search is empty; write a new file with file_write")
        found = text.count(search)
        if found != 1:
            raise FileRefused(f"{which}: {_missing(text, search) if not found else _several(text, search)}")
        text = text.replace(search, replace)
    return text


def _with_ends(text: str, *, crlf: bool) -> str:
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if crlf else text


def _several(text: str, search: str) -> str:
    lines: list[str] = []
    position = text.find(search)
    while position >= 0 and len(lines) < 10:
        lines.append(str(text.count("\n", 0, position) + 1))
        position = text.find(search, position + len(search))
    return f"search occurs {text.count(search)} times (lines {', '.join(lines)}); add lines around it to make it unique"


def _missing(text: str, search: str) -> str:
    lines = text.splitlines()[:MAX_LINES_COMPARED]
    wanted = [line for line in search.splitlines() if line.strip()]
    if not wanted or not lines:
        return "search does not occur; the file is empty" if not lines else "search does not occur"
    nearest = _nearest(lines, wanted[0])
    if nearest is None:
        return "search does not occur, nor anything like its first line; read the file again"
    first = max(0, nearest - _CONTEXT_LINES)
    last = nearest + len(search.splitlines()) + _CONTEXT_LINES
    shown = "\n".join(
        f"{number}: {line[:MAX_LINE_CHARS]}"
        for number, line in enumerate(lines[first : min(last, first + 20)], first + 1)
    )
    hint = " (only spaces differ)" if _squeezed(search) in _squeezed("\n".join(lines)) else ""
    return f"search does not occur exactly{hint}; the nearest lines are\n{shown}"


def _nearest(lines: Sequence[str], wanted: str) -> int | None:
    """The line most like the wanted one."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted.strip()[:MAX_LINE_CHARS])
    best, place = _SIMILAR, None
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:MAX_LINE_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, place = ratio, number
    return place


def _squeezed(text: str) -> str:
    return " ".join(text.split())
