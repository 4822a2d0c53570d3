"""Markdown on a terminal, in rows.

Not rich's: structlog imports rich wherever that is installed, in the server too. It also cuts off what is wide in
tables, and does not know what may begin a row in scripts without spaces.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from klaw.domain.text_width import harmless, width, wrap
from klaw.web.markdown_rules import formulas

Span: TypeAlias = tuple[str, str]
"""Printable text, and its look as a terminal takes it (SGR)."""

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
"""Tags are text: ``vector<int>`` is one."""
formulas(_PARSER)
_BOLD, _FAINT, _CODE = "1", "2", "36"
_LOOKS = {"strong": _BOLD, "em": "3", "s": "9", "link": "4"}
_COLOURS = {"Comment": _FAINT, "Keyword": "35", "Literal.String": "32", "Literal.Number": "36", "Name.Function": _BOLD}
MAX_CHARS = 20_000
"""A longer block is shown as it is: markdown-it takes quadratic time for some, seconds for 400,000 brackets."""
MAX_CODE_CHARS = 2_000
"""Longer code has no colours …"""
COLOURED = frozenset({
    "bash", "c", "c++", "cpp", "css", "diff", "dockerfile", "go", "html", "ini", "java", "javascript", "js", "json",
    "kotlin", "lua", "make", "makefile", "php", "powershell", "py", "python", "rb", "rs", "ruby", "rust", "sh", "shell",
    "sql", "swift", "toml", "ts", "typescript", "xml", "yaml", "yml", "zsh",
})  # fmt: skip
"""… nor has that in other languages: lexers of Pygments may take quadratic time and more. ``tools/lexers.py`` tries
them."""
_SEQUENCES = re.compile("\x1b\\[[0-9;]*m")
_LEAST = 2
"""Cells of a column; a character may take two."""


def render(text: str, columns: int) -> list[str]:
    """The rows of foreign Markdown: printable characters, and sequences for colour and weight only."""
    if len(text) > MAX_CHARS:
        return _flow([(harmless(text).rstrip("\n"), "")], max(columns, _LEAST))
    return _blocks(SyntaxTreeNode(_PARSER.parse(text)).children, columns)


def plain(row: str) -> str:
    return _SEQUENCES.sub("", row)


def _blocks(nodes: Iterable[SyntaxTreeNode], columns: int) -> list[str]:
    rows: list[str] = []
    tight = True
    for node in nodes:
        rows += [*([] if tight else [""]), *_block(node, max(columns, _LEAST))]
        tight = node.type == "paragraph" and node.hidden  # of a list without empty lines
    return rows


def _block(node: SyntaxTreeNode, columns: int) -> list[str]:
    match node.type:
        case "heading":
            return _flow(_inside(node, f"{_BOLD};4" if node.tag == "h1" else _BOLD), columns)
        case "fence" | "code_block":
            return _flow(_code(harmless(node.content).rstrip("\n"), node.info), columns)
        case "blockquote":
            return [f"{_look('▌', _FAINT)} {row}" for row in _blocks(node.children, columns - 2)]
        case "bullet_list" | "ordered_list":
            return _list(node, columns)
        case "table":
            return _table(node, columns)
        case "formula_block":
            return _flow([(harmless(node.content), "")], columns)
        case "hr":
            return [_look("─" * columns, _FAINT)]
        case _:
            return _flow(_inside(node), columns)


def _list(node: SyntaxTreeNode, columns: int) -> list[str]:
    first = int(node.attrs.get("start", 1))
    marks = [f"{number}." if node.type == "ordered_list" else "•" for number, _ in enumerate(node.children, first)]
    indent = len(marks[-1]) + 1
    loose = any(part.type == "paragraph" and not part.hidden for item in node.children for part in item.children)
    rows: list[str] = []
    for mark, item in zip(marks, node.children, strict=True):
        head, *more = _blocks(item.children, columns - indent) or [""]
        parted = [""] if rows and loose else []
        rows += [*parted, f"{mark:>{indent - 1}} {head}", *(" " * indent + row if row else "" for row in more)]
    return rows


def _table(node: SyntaxTreeNode, columns: int) -> list[str]:
    """Cells that are too wide are wrapped in their column."""
    lines = [line for part in node.children for line in part.children]
    cells = [[list(_inside(cell, _BOLD if cell.type == "th" else "")) for cell in line.children] for line in lines]
    texts = [["".join(text for text, _ in cell) for cell in line] for line in cells]
    widths = [min(max(map(width, column)), columns) for column in zip(*texts, strict=False)]
    while sum(widths) + 2 * len(widths) - 2 > columns and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    right = ["right" in str(cell.attrs.get("style")) for cell in lines[0].children]
    rows: list[str] = []
    for number, line in enumerate(cells):
        flows = [_flow(cell, cells_wide) for cell, cells_wide in zip(line, widths, strict=False)]
        for place in range(max(map(len, flows))):
            parts = []
            for flow, cells_wide, flush in zip(flows, widths, right, strict=False):
                part = flow[place] if place < len(flow) else ""
                space = " " * (cells_wide - width(plain(part)))
                parts.append(space + part if flush else part + space)
            rows.append("  ".join(parts).rstrip(" "))
        if number == 0:
            rows.append(_look("  ".join("─" * each for each in widths), _FAINT))
    return rows


def _code(text: str, info: str) -> Iterator[Span]:
    from pygments.lexers import get_lexer_by_name
    from pygments.token import string_to_tokentype

    language = info.split(maxsplit=1)[0].lower() if info.strip() else ""
    if language not in COLOURED or len(text) > MAX_CODE_CHARS:
        yield text, _CODE
        return
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    for kind, part in lexer.get_tokens(text):
        yield part, next((look for name, look in _COLOURS.items() if kind in string_to_tokentype(name)), "")


def _inside(node: SyntaxTreeNode, look: str = "") -> Iterator[Span]:
    """The text of a block. Line ends stay: people and models mean them."""
    for part in node.children:
        if part.type in ("softbreak", "hardbreak"):
            yield "\n", look
        elif part.type == "image":
            yield f"{harmless(part.content)} ({_address(part, 'src')})", look
        elif part.type == "code_inline":
            yield harmless(part.content), _more(look, _CODE)
        elif part.children:
            spans = list(_inside(part, _more(look, _LOOKS.get(part.type, ""))))
            yield from spans
            if part.type == "link" and "".join(text for text, _ in spans) != (address := _address(part, "href")):
                yield f" ({address})", look
        else:
            yield harmless(part.content), look


def _address(node: SyntaxTreeNode, name: str) -> str:
    return harmless(_PARSER.normalizeLinkText(str(node.attrs.get(name, ""))))


def _more(look: str, another: str) -> str:
    return ";".join(filter(None, (look, another)))


def _look(text: str, look: str) -> str:
    return f"\x1b[{look}m{text}\x1b[0m" if look and text else text


def _flow(spans: Iterable[Span], columns: int) -> list[str]:
    spans = list(spans)
    text, looks = "".join(each for each, _ in spans), [look for each, look in spans for _ in each]
    rows, at = [], 0
    for row in (row.rstrip(" ") for line in text.split("\n") for row in wrap(line, columns)):
        at = text.index(row, at)  # between two rows there are only spaces and line ends
        rows.append(_row(row, looks[at : at + len(row)]))
        at += len(row)
    return rows


def _row(text: str, looks: Sequence[str]) -> str:
    groups = groupby(zip(text, looks, strict=True), key=lambda each: each[1])
    return "".join(_look("".join(character for character, _ in group), look) for look, group in groups)
