"""What Klaw's Markdown has beside CommonMark: formulas, footnotes and bare links. Rules of markdown-it, for the page
and for the terminal, which shows the source of formulas. Pure."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

MAX_FORMULA = 2_000
"""Characters of a formula: what is longer is text."""
_PAIRS = {"$$": "$$", r"\[": r"\]", r"\(": r"\)"}
_DOLLARS = re.compile(r"\$(?!\s)((?:\\.|[^\\$\n]){1,2000})(?<!\s)\$(?![\w$])")
_MONEY = re.compile(r"\d[^\\{}^_=+*/<>]*\s[^\\{}^_=+*/<>]*")
"""Between two signs of money: a number, and words behind it."""
_MARK = re.compile(r"\[\^(\d{1,3}|[A-Za-z][\w-]{0,31})\]")
_NOTE = re.compile(rf"{_MARK.pattern}:[ \t]+(?=\S)")
_NOTES = re.compile(rf"^ {{0,3}}{_MARK.pattern}:", re.MULTILINE)
_LINK = re.compile(r"(?<!\w)https?://[^\s<>\"`]{1,2000}", re.IGNORECASE)
_OPENED = {")": "(", "]": "["}
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)")


def formulas(reader: MarkdownIt) -> None:
    r"""Read ``$…$``, ``$$…$$``, ``\(…\)`` and ``\[…\]``. The tokens ``formula`` and ``formula_block`` have the
    source as content, the LaTeX as ``info``, and in ``meta`` whether it stands by itself (``shown``)."""
    reader.inline.ruler.before("escape", "formula", _formula)
    ends = ["paragraph", "reference", "blockquote", "list"]
    reader.block.ruler.before("fence", "formula_block", _formula_block, {"alt": ends})


def extras(reader: MarkdownIt) -> None:
    """Read footnotes and bare links, and let each block have the direction of its own letters."""
    reader.inline.ruler.before("link", "footnote", _footnote)
    reader.block.ruler.before("reference", "footnote_text", _footnote_text, {"alt": ["paragraph"]})
    reader.core.ruler.push("bare_links", _bare_links)
    reader.core.ruler.push("directions", _directions)


def reader() -> MarkdownIt:
    """Reads Klaw's Markdown, with tables and task lists; HTML in it is text."""
    options = {"html": False, "linkify": False, "breaks": True, "tasklists": True}
    made = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    formulas(made)
    extras(made)
    return made


def environment(text: str, **more: Any) -> dict[str, Any]:
    """What the rules are to know of a whole text."""
    return {"notes": {found[1] for found in _NOTES.finditer(text)}, **more}


@cache
def outline() -> MarkdownIt:
    """Reads blocks only, and nothing inside of them."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table").disable("inline")
    formulas(reader)
    return reader


def whole_blocks(text: str) -> int:
    """Characters of the blocks at the beginning of a text that no further text can change."""
    lines = _LINE.findall(text)
    tokens = outline().parse("".join(lines), {"grows": True})
    begins = [token.map[0] for token in tokens if token.level == 0 and token.map and token.nesting >= 0]
    return sum(map(len, lines[: begins[-1]])) if len(begins) > 1 else 0


# -- formulas ----------------------------------------------------------------------------------------------------------


def _formula(state: StateInline, silent: bool) -> bool:
    text, at = state.src[: state.posMax], state.pos
    if text[at] not in "$\\":
        return False
    opening = text[at : at + 2]
    closing = _PAIRS.get(opening)
    if closing is not None:
        end = text.find(closing, at + 2, at + 2 + MAX_FORMULA)
        latex, end, shown = text[at + 2 : end], end + 2, opening != r"\("
        if end < 2 or not latex.strip() or (opening == r"\[" and text[end : end + 1] == "("):
            return False
    else:
        found = _DOLLARS.match(text, at)
        if found is None or (at and (text[at - 1].isalnum() or text[at - 1] == "$")) or _MONEY.fullmatch(found[1]):
            return False
        latex, end, shown = found[1], found.end(), False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.info, token.meta = text[at:end], latex.strip(), {"shown": shown}
    state.pos = end
    return True


def _formula_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Lines from an opening sign to the closing one. In a text that ``grows``, what is not closed yet is open."""
    begin = state.bMarks[first] + state.tShift[first]
    closing = _PAIRS.get(state.src[begin : begin + 2])
    if closing is None or closing == r"\)" or state.is_code_block(first):
        return False
    lines: list[str] = []
    length = 0
    for number in range(first, last):
        line = state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]
        length += len(line)
        if not line.strip() or length > MAX_FORMULA or state.sCount[number] < state.blkIndent:
            return False
        lines.append(line.rstrip())
        body = "\n".join(lines)
        if (end := body.find(closing, 2)) >= 0:
            latex = body[2:end].strip()
            return bool(latex) and end + 2 == len(body) and _put_block(state, first, number + 1, body, latex, silent)
    return bool(state.env.get("grows")) and _put_block(state, first, last, "\n".join(lines), "", silent)


def _put_block(state: StateBlock, first: int, behind: int, source: str, latex: str, silent: bool) -> bool:
    if not silent:
        state.line = behind
        token = state.push("formula_block", "math", 0)
        token.map, token.content, token.info, token.meta = [first, behind], source, latex, {"shown": True}
    return True


# -- footnotes ---------------------------------------------------------------------------------------------------------


def _footnote(state: StateInline, silent: bool) -> bool:
    found = _MARK.match(state.src, state.pos, state.posMax)
    if found is None or not (found[1].isdigit() or found[1] in state.env.get("notes", ())):
        return False
    if not silent:
        state.push("footnote", "sup", 0).content = found[1]
    state.pos = found.end()
    return True


def _footnote_text(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A paragraph that begins with the mark of its footnote."""
    begin = state.bMarks[first] + state.tShift[first]
    found = _NOTE.match(state.src, begin, state.eMarks[first])
    if found is None or state.is_code_block(first):
        return False
    if silent:
        return True
    behind = first + 1
    while behind < last and not state.isEmpty(behind):
        if _NOTE.match(state.src, state.bMarks[behind] + state.tShift[behind], state.eMarks[behind]):
            break
        behind += 1
    text = state.getLines(first, behind, state.blkIndent, False).strip()
    state.line = behind
    opened = state.push("paragraph_open", "p", 1)
    opened.map, opened.attrs = [first, behind], {"class": "footnote"}
    inside = state.push("inline", "", 0)
    inside.content, inside.map, inside.children = text.replace("]:", "]", 1), [first, behind], []
    state.push("paragraph_close", "p", -1)
    return True


# -- bare links, directions ----------------------------------------------------------------------------------------


def _bare_links(state: StateCore) -> None:
    for block in state.tokens:
        if block.type == "inline" and "://" in block.content:
            block.children = _linked(block.children or [], state.md)


def _linked(tokens: list[Token], reader: MarkdownIt) -> list[Token]:
    out: list[Token] = []
    depth = 0
    for token in tokens:
        depth += token.nesting if token.type.startswith("link_") else 0
        if token.type != "text" or depth:
            out.append(token)
            continue
        at = 0
        for found in _LINK.finditer(token.content):
            address = _address(found[0])
            href = reader.normalizeLink(address)
            if reader.validateLink(href):
                out.append(_text(token.content[at : found.start()]))
                out.append(Token("link_open", "a", 1, attrs={"href": href}))
                out += [_text(address), Token("link_close", "a", -1)]
                at = found.start() + len(address)
        out.append(_text(token.content[at:]))
    return out


def _address(found: str) -> str:
    """A link without what ends the sentence around it."""
    while (last := found[-1]) in ".,;:!?*_~'»”" or (last in _OPENED and found.count(last) > found.count(_OPENED[last])):
        found = found[:-1]
    return found


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _directions(state: StateCore) -> None:
    for token in state.tokens:
        if token.level == 0 and token.nesting == 1:
            token.attrSet("dir", "auto")
        if token.type in ("th_open", "td_open") and (style := token.attrs.pop("style", None)):
            token.attrSet("class", str(style).removeprefix("text-align:"))


# -- HTML --------------------------------------------------------------------------------------------------------------


def footnote(_renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    """The HTML of a mark of a footnote."""
    return f"<sup>{escape(tokens[index].content)}</sup>"


def list_item(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """The HTML that begins an item of a list, with its box if it is a task."""
    token = tokens[index]
    if "checked" not in token.meta:
        return renderer.renderToken(tokens, index, options, env)
    return f'<li class="task">{"☑" if token.meta["checked"] else "☐"} '
