"""Markdown for messengers: as text with styles, and cut into messages no longer than a service takes. Pure."""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, takewhile
from typing import TypeAlias

import attrs
import regex
from markdown_it.token import Token

from klaw.domain.text_width import width
from klaw.web.markdown_rules import environment, outline, reader

MAX_CHARS = 20_000
"""Of Markdown that is read at once: markdown-it takes quadratic time for some texts."""
MAX_FENCE = 30
"""Characters of what is repeated where a fence goes on."""
_BULLETS = "•◦▪"
_ADDRESS = re.compile(r"https?://(?:\[|[^/?#\s]*[^/?#\s.]\.[^/?#\s])|tg://\w", re.IGNORECASE)
"""Of a link; services drop others, and those to a host without a dot."""
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_SCHEME = re.compile(r"https?://|mailto:", re.IGNORECASE)
_BLANK = regex.compile(r"[\s\p{Cc}\p{Cf}\p{Mn}\u115f\u1160\u2800\u3164\uffa0]*")
"""Messengers take text of nothing else for empty."""
_SPACE = regex.compile(r"(?:\s(?![\p{M}\u200d]))*")
_SENTENCE = r"(?<=[.!?…])[\"'»”’)\]]*(?=\s)|(?<=[。！？])"
_BREAKS = tuple(map(re.compile, (r"(?=\n\s*\n)", r"(?=\n)", _SENTENCE, r"(?=\s)")))
"""Where text is cut, the best first: between paragraphs, lines, sentences, words."""
_LINK = re.compile(r"!?\[[^\[\]\n]*\]\([^()\n]*\)|<?https?://[^\s<>]+>?", re.IGNORECASE)
_UNSHOWN = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F)], "")
_UNSHOWN |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_UNSHOWN |= {ord("\n"): "\n", ord("\t"): "    ", 0x2028: "\n", 0x2029: "\n"}


@attrs.frozen(eq=False)
class TextStyle:
    kind: str
    """``strong``, ``em``, ``s``, ``link``, ``quote``, ``code`` or ``pre``. The last two have nothing inside, and stand
    in nothing but ``quote``."""
    value: str = ""
    """The address of a link, the language of a ``pre``."""


Run: TypeAlias = tuple[str, tuple[TextStyle, ...]]
"""Text, and its styles from the outermost to the innermost."""


@attrs.frozen
class StyledText:
    runs: tuple[Run, ...]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.runs)

    def cut(self, begin: int, end: int) -> "StyledText":
        """The characters from ``begin`` to before ``end``."""
        ends = accumulate(len(text) for text, _ in self.runs)
        spans = ((text, styles, end_ - len(text)) for (text, styles), end_ in zip(self.runs, ends, strict=True))
        parts = ((text[max(0, begin - at) : max(0, end - at)], styles) for text, styles, at in spans)
        return StyledText(tuple((text, styles) for text, styles in parts if text))

    def ranges(self, kind: str) -> Iterator[tuple[int, int, TextStyle]]:
        """Begin and end of each style of a kind."""
        found: dict[TextStyle, tuple[int, int]] = {}
        at = 0
        for text, styles in self.runs:
            for style in styles:
                if style.kind == kind:
                    found[style] = (found.get(style, (at, at))[0], at + len(text))
            at += len(text)
        yield from ((begin, end, style) for style, (begin, end) in found.items())

    @property
    def plain(self) -> str:
        """The text, with the addresses of its links behind them."""
        text = self.text
        for begin, end, link in reversed(list(self.ranges("link"))):
            if not _says(text[begin:end], link.value):
                text = f"{text[:end]} ({link.value}){text[end:]}"
        return text


_reader = cache(reader)


def styled(markdown: str) -> StyledText:
    """What Markdown of at most MAX_CHARS shows. Formulas stay as they are written; tables become ``pre``."""
    writer = _Writer()
    tokens = iter(_reader().parse(markdown, environment(markdown)))
    for token in tokens:
        if token.type == "table_open":
            writer.table(list(takewhile(lambda each: each.type != "table_close", tokens)))
        else:
            writer.block(token)
    return StyledText(tuple(writer.runs))


class _Writer:
    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._styles: list[TextStyle] = []
        self._opened: list[TextStyle | None] = []
        """As ``_styles``, with None for what is not shown, because it is inside of its like."""
        self._prefixes: list[str] = []
        """What lines of lists and of quotations in quotations begin with."""
        self._lists: list[int | None] = []
        """The next number of each list that is open; None: it has bullets."""
        self._lines = 0
        """Line ends before whatever comes next."""

    def block(self, token: Token) -> None:
        if token.type == "inline":
            self._inline(token.children or [])
        elif token.nesting == 1:
            self._open_block(token)
        elif token.nesting == -1:
            self._close_block(token)
        elif token.type in ("fence", "code_block"):
            self._verbatim(token.content, "".join(_LANGUAGE.findall(token.info)[:1]))
        else:
            self._write(token.content if token.type == "formula_block" else "─" * 12)
            self._end_block()

    def _open_block(self, token: Token) -> None:
        if self._lists and token.type.endswith("list_open"):
            self._lines = min(self._lines, 1)
        match token.type:
            case "heading_open":
                self._open(TextStyle("strong"))
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                self._lists.append(int(token.attrs.get("start", 1)))
            case "list_item_open":
                self._item(token)
            case "blockquote_open":
                self._quote()

    def _close_block(self, token: Token) -> None:
        match token.type:
            case "paragraph_close":
                self._lines = 1 if token.hidden else 2
            case "heading_close":
                self._close()
                self._end_block()
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self._end_block()
            case "list_item_close":
                self._prefixes.pop()
                self._lines = max(self._lines, 1)
            case "blockquote_close":
                if self._close() is None:
                    self._prefixes.pop()
                self._end_block()

    def table(self, tokens: Sequence[Token]) -> None:
        """Cells are aligned in columns."""
        rows: list[list[str]] = []
        sides: list[str] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
                sides = []
            elif token.type in ("th_open", "td_open"):
                sides.append(str(token.attrs.get("class", "left")))
            elif token.type == "inline":
                cell = _Writer()
                cell._inline(token.children or [])
                rows[-1].append(StyledText(tuple(cell.runs)).plain.replace("\n", " "))
        wide = [max(map(width, column)) for column in zip(*rows, strict=True)]
        lines = [" │ ".join(map(_aligned, row, wide, sides)).rstrip() for row in rows]
        lines.insert(1, "─┼─".join("─" * each for each in wide))
        self._verbatim("\n".join(lines), "")

    def _item(self, token: Token) -> None:
        number = self._lists[-1]
        if number is not None:
            mark = f"{number}. "
            self._lists[-1] = number + 1
        elif "checked" in token.meta:
            mark = "☑ " if token.meta["checked"] else "☐ "
        else:
            mark = f"{_BULLETS[min(len(self._lists), len(_BULLETS)) - 1]} "
        self._write(mark)
        self._prefixes.append("  " if number is None else "   ")

    def _quote(self) -> None:
        inside = any(style.kind == "quote" for style in self._styles)
        if not inside:
            self._on_new_line()
        self._open(None if inside else TextStyle("quote"))
        if inside:
            self._write("> ")
            self._prefixes.append("> ")

    def _verbatim(self, code: str, language: str) -> None:
        self._on_new_line()
        if code.strip():
            self._code(code.rstrip("\n"), TextStyle("pre", language))
        self._end_block()

    def _inline(self, tokens: Iterable[Token]) -> None:
        links: list[tuple[int, str]] = []
        for token in tokens:
            match token.type:
                case "strong_open" | "em_open" | "s_open":
                    self._open(TextStyle(token.tag))
                case "strong_close" | "em_close" | "s_close":
                    self._close()
                case "link_open":
                    links.append(self._begin_link(str(token.attrs["href"])))
                case "link_close":
                    self._end_link(*links.pop())
                case "image":
                    picture = self._begin_link(str(token.attrs["src"]))
                    self._write(token.content)
                    self._end_link(*picture)
                case "code_inline":
                    self._code(token.content, TextStyle("code"))
                case "softbreak" | "hardbreak":
                    self._write("\n")
                case "footnote":
                    self._write(f"[{token.content}]")
                case _:
                    self._write(token.content)

    def _begin_link(self, address: str) -> tuple[int, str]:
        self._open(TextStyle("link", address) if _ADDRESS.match(address) else None)
        return len(self.runs), address

    def _end_link(self, begun: int, address: str) -> None:
        readable = _reader().normalizeLinkText(address)
        shown = "".join(text for text, _ in self.runs[begun:])
        if is_blank(shown):
            self._write(readable)
        if self._close() is None and not is_blank(shown) and not _says(shown, readable):
            self._write(f" ({readable})")

    def _open(self, style: TextStyle | None) -> None:
        self._flush()
        if style and any(style.kind == each.kind for each in self._styles):
            style = None
        self._opened.append(style)
        self._styles += [style] if style else []

    def _close(self) -> TextStyle | None:
        style = self._opened.pop()
        return self._styles.pop() if style else None

    def _end_block(self) -> None:
        self._lines = 1 if self._lists else 2

    def _flush(self) -> None:
        if self._lines and self.runs:
            self._put("\n" * self._lines + "".join(self._prefixes))
        self._lines = 0

    def _on_new_line(self) -> None:
        if self.runs and (self._lines or not self.runs[-1][0].endswith("\n")):
            self._put("\n" * max(self._lines, 1))
        self._lines = 0

    def _write(self, text: str) -> None:
        if text := text.translate(_UNSHOWN):
            self._flush()
            self._put(text.replace("\n", "\n" + "".join(self._prefixes)))

    def _code(self, code: str, style: TextStyle) -> None:
        self._flush()
        quotes = [each for each in self._styles if each.kind == "quote"]
        in_link = any(each.kind == "link" for each in self._styles)
        self.runs.append((code.translate(_UNSHOWN), tuple(self._styles) if in_link else (*quotes, style)))

    def _put(self, text: str) -> None:
        self.runs.append((text, tuple(self._styles)))


def _says(shown: str, address: str) -> bool:
    """Whether the text of a link is its address."""
    bare = (_SCHEME.sub("", each).rstrip("/") for each in (shown, _reader().normalizeLinkText(address)))
    return len(set(bare)) == 1


def _aligned(text: str, wide: int, side: str) -> str:
    space = wide - width(text)
    left = {"right": space, "center": space // 2}.get(side, 0)
    return " " * left + text + " " * (space - left)


def is_blank(text: str) -> bool:
    """Whether nobody sees anything of a text."""
    return _BLANK.fullmatch(text) is not None


def cut(whole: StyledText, fits: Callable[[StyledText], bool]) -> list[StyledText]:
    """The parts of a text that each fit, none of them blank. A cut stands between paragraphs if it can, else lines,
    sentences, words, or graphemes; inside of a link only if that alone does not fit."""
    text, parts, at = whole.text, [], 0
    links = [(begin, end) for begin, end, _ in whole.ranges("link")]
    verbatim = [(begin, end) for begin, end, _ in whole.ranges("pre")]
    while at < len(text):
        if any(begin <= at < end for begin, end in verbatim):
            at += text[at] == "\n"  # what follows may be indented
        else:
            at = _SPACE.match(text, at).end()
        begin = at
        most = _longest(text, begin, lambda begin, end: fits(whole.cut(begin, end)))
        at = most if most == len(text) else _best_cut(text, begin, most, links)
        if not is_blank(text[begin:at]):
            parts.append(whole.cut(begin, begin + len(text[begin:at].rstrip())))
    return parts


def split(markdown: str, fits: Callable[[str], bool]) -> list[str]:
    """The pieces of a Markdown text that each fit and can be rendered by themselves. A piece ends between blocks if it
    can, else as in ``cut``; code that goes on in the next piece is closed and opened again."""
    text = markdown.replace("\r\n", "\n").replace("\r", "\n")
    if fits(text):
        return [text] if text.strip() else []
    blocks, fences = _layout(text)
    links = [found.span() for found in _LINK.finditer(text)]
    closing = max((f"\n{fence.closing}" for fence in fences), key=len, default="")
    pieces, at, opening = [], 0, ""

    def fits_between(begin: int, end: int) -> bool:
        return fits(opening + text[begin:end] + closing)

    while at < len(text):
        begin, head = at, opening
        most = _longest(text, begin, fits_between)
        if most == len(text):
            at = most
        else:
            between = bisect_left(blocks, most + 1) - 1
            at = blocks[between] if blocks[between] > begin else _best_cut(text, begin, most, links)
        cut_fence = next((fence for fence in fences if fence.begin < at < fence.end), None)
        opening = f"{cut_fence.opening}\n" if cut_fence else ""
        piece = head + text[begin:at].rstrip("\n") + (f"\n{cut_fence.closing}" if cut_fence else "")
        if piece.strip():
            pieces.append(piece)
        at += text[at : at + 1] == "\n"
    return pieces


@attrs.frozen
class _Fence:
    begin: int
    end: int
    opening: str
    closing: str


def _layout(text: str) -> tuple[list[int], list[_Fence]]:
    """Where the blocks of a text begin, and its fences, also those inside other blocks."""
    lines = text.split("\n")
    begins = [0, *accumulate(len(line) + 1 for line in lines)]
    tokens = outline().parse(text)
    fences = []
    for token in tokens:
        if token.type == "fence" and token.map and len(token.markup) <= MAX_FENCE:
            first, behind = token.map
            prefix = re.sub(r"[^>\s]", " ", lines[first].partition(token.markup)[0])
            prefix = prefix if ">" in prefix else prefix[:3]
            closed = token.markup in lines[behind - 1] and behind - 1 > first
            end = begins[behind - 1] if closed else begins[behind]
            opening = prefix + token.markup + "".join(token.info.split()[:1])[:MAX_FENCE]
            fences.append(_Fence(begins[first + 1] - 1, end, opening, prefix + token.markup))
    return [0, *(begins[token.map[0]] for token in tokens if token.level == 0 and token.map)], fences


def _longest(text: str, begin: int, fits: Callable[[int, int], bool]) -> int:
    """The largest end of what fits from ``begin`` on: at least one character."""
    ends = range(begin + 1, len(text) + 1)
    return begin + max(1, bisect_left(ends, True, key=lambda end: not fits(begin, end)))


def _best_cut(text: str, begin: int, most: int, links: Collection[tuple[int, int]]) -> int:
    """Where to cut, at most at ``most``."""
    half = (begin + most) // 2
    graphemes = takewhile(lambda at: at <= most, (found.start() for found in regex.finditer(r"\X", text, pos=begin)))
    possible = {at for at in graphemes if at > begin}
    near = ((first, end) for first, end in links if first < most and end > begin)
    allowed = possible.difference(*(range(first + 1, end) for first, end in near)) or possible
    for pattern, least in (*((each, half) for each in _BREAKS), (_BREAKS[-1], begin + 1)):
        found = (match.end() for match in pattern.finditer(text, begin, most + 2))
        if best := max((at for at in found if at >= least and at in allowed), default=0):
            return best
    return max(allowed, default=most)
