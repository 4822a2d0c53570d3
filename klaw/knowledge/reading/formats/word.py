"""Documents of Word, in its new format, as their readers see them: with the numbers that Word counts, with what was
inserted and without what was deleted."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from klaw.knowledge.reading.archive import DRAWING, Archive
from klaw.knowledge.reading.formats.tables import table_lines
from klaw.knowledge.reading.output import Output, UnreadableError

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BREAKS = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-", f"{W}ptab": "\t"}
_STYLE = re.compile(r"(?:heading|заголовок) (\d)$", re.IGNORECASE)
MAX_BASES = 20
"""A style may stand on another; they may also stand on each other in a circle."""
_UNSEEN = {
    f"{W}del", f"{W}moveFrom", f"{W}rt", f"{W}instrText", f"{W}delText",
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}  # fmt: skip
"""Deleted, said elsewhere, or said once more for other programs."""
_SYMBOLS = {"F0FE": "☒", "F0FD": "☒", "F0FC": "✓", "F0A8": "☐", "F06F": "☐", "F0A3": "☐"}
"""Of the fonts Wingdings, with which boxes are ticked."""
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
PAGE_NUMBER = re.compile(r"\W*(?:(?:page|страница|стр\.?|seite)\W*)?\d*\W*(?:(?:of|из|von)\W*)?\d*\W*", re.IGNORECASE)


def read(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Paragraphs and tables; then what stands beside them. Pages depend on who prints it."""
    with Archive(file, request["unpacked_bytes"]) as archive:
        archive.check_xml()
        main = next(iter(archive.related("", "officeDocument")), "word/document.xml")
        for part in archive.related("", "core-properties"):
            output.title(archive.xml(part).findtext("{*}title"))
        _WordReading(archive, main, output).read()


class _WordReading:
    def __init__(self, archive: Archive, main: str, output: Output) -> None:
        self._archive = archive
        self._main = main
        self._output = output
        self._path: list[tuple[int, str]] = []
        self._styles = {
            style.get(f"{W}styleId"): style
            for part in self._parts("styles")
            for style in part.iterchildren(f"{W}style")
        }
        self._levels: dict[str | None, int | None] = {}
        self._numbering = Numbering(next(self._parts("numbering"), None), self._styles)

    def read(self) -> None:
        body = self._archive.xml(self._main).find(f"{W}body")
        if body is None:
            raise UnreadableError("broken", "is damaged: it has no body")
        for element in _content(body):
            headings = tuple(text for _, text in self._path)
            if element.tag == f"{W}tbl":
                self._output.block(table_lines(self._rows(element)), headings=headings, kind="table")
            else:
                self._paragraph(element)
        self._beside()

    def _beside(self) -> None:
        """What stands above, below and beside the pages; the same text once."""
        texts: dict[str, None] = {}
        for kind in ("header", "footer", "footnotes", "endnotes"):
            for part in self._parts(kind):
                texts |= dict.fromkeys(
                    self._text(each).strip() for each in (part if kind.endswith("notes") else [part])
                )
        for text in texts:
            if not PAGE_NUMBER.fullmatch(text):
                self._output.block(text)
        for part in self._parts("comments"):
            for comment in part.iterchildren(f"{W}comment"):
                self._output.block(f"Comment ({comment.get(f'{W}author', '')}): {self._text(comment).strip()}")
        for part in self._parts("diagramData"):
            for paragraph in part.iter(f"{DRAWING}p"):
                self._output.block("".join(paragraph.itertext()))
        if self._archive.related(self._main, "aFChunk"):
            self._output.problem("part_left_out", "holds another document, which is not read: save it with Word first")

    def _parts(self, kind: str) -> Iterator[Any]:
        for name in self._archive.related(self._main, kind):
            yield self._archive.xml(name)

    def _paragraph(self, element: Any) -> None:
        text = self._text(element).strip()
        named = value(element, "pPr", "pStyle")
        level = self._levels[named] = self._levels[named] if named in self._levels else self._level(named)
        if level is not None and text:
            if level == 0:
                self._output.title(text)
            while self._path and self._path[-1][0] >= level:
                self._path.pop()
            self._path.append((level, text))
        self._output.block(text, headings=tuple(text for _, text in self._path))

    def _level(self, named: str | None) -> int | None:
        """Level of a heading; 0 for a title, None for anything else."""
        for style in bases(named, self._styles):
            name = value(style, "name") or ""
            if name == "Title":
                return 0
            if found := _STYLE.match(name):
                return int(found[1])
            if (outline := value(style, "pPr", "outlineLvl")) and outline in "012345678":
                return int(outline) + 1
        return None

    def _rows(self, table: Any) -> Iterator[list[str]]:
        """Cells of a table; one that is merged with those above has their text."""
        above: dict[int, str] = {}
        for row in _own(table, "tr"):
            if row.find(f"{W}trPr/{W}del") is not None:
                continue
            column, texts = 0, []
            for cell in _own(row, "tc"):
                merged = cell.find(f"{W}tcPr/{W}vMerge")
                goes_on = merged is not None and merged.get(f"{W}val") != "restart"
                texts.append(above.get(column, "") if goes_on else self._text(cell))
                above[column] = texts[-1]
                column += int(value(cell, "tcPr", "gridSpan") or 1)
            yield texts

    def _text(self, element: Any) -> str:
        parts: list[str] = []
        self._take(element, parts)
        return "".join(parts)

    def _take(self, element: Any, parts: list[str]) -> None:
        tag = element.tag
        if tag in _UNSEEN or not isinstance(tag, str) or (tag == f"{W}r" and _is_hidden(element)):
            return
        if tag == f"{W}t":
            parts.append(element.text or "")
        elif tag == f"{W}sym":
            parts.append(_SYMBOLS.get(element.get(f"{W}char", "").upper(), ""))
        elif tag == _MATH:
            parts.append(formula(element))
        elif tag == f"{W}checkBox":
            checked = element.find(f"{W}checked")
            checked = element.find(f"{W}default") if checked is None else checked
            parts.append("☐ " if checked is None or checked.get(f"{W}val") in ("0", "false") else "☒ ")
        else:
            if tag == f"{W}p":
                parts.append("\n" if parts else "")
                parts.append(self._numbering.number(element))
            elif tag in _BREAKS and element.getparent().tag == f"{W}r":  # a tab may also be one of a ruler
                parts.append(_BREAKS[tag])
            for each in element:
                self._take(each, parts)


def _is_hidden(run: Any) -> bool:
    found = run.find(f"{W}rPr/{W}vanish")
    return found is not None and found.get(f"{W}val") not in ("0", "false")


def bases(named: str | None, styles: Mapping[str, Any]) -> Iterator[Any]:
    """A style and those that it stands on."""
    for _ in range(MAX_BASES):
        style = styles.get(named or "")
        if style is None:
            return
        yield style
        named = value(style, "basedOn")


def value(element: Any, *path: str) -> str | None:
    found = element.find("/".join(f"{W}{part}" for part in path))
    said: str | None = found.get(f"{W}val") if found is not None else None
    return said


def _content(body: Any) -> Iterator[Any]:
    """Paragraphs and tables, also those in content controls and the like."""
    for element in body.iterchildren():
        if element.tag in (f"{W}p", f"{W}tbl"):
            yield element
        elif isinstance(element.tag, str) and element.tag not in _UNSEEN:
            yield from _content(element)


def _own(element: Any, part: str) -> Iterator[Any]:
    """The rows of a table, or the cells of a row, without those of tables in it; whatever wraps them."""
    for each in element.iter(f"{W}{part}"):
        if next(each.iterancestors(element.tag)) is element:
            yield each


# -- numbers -----------------------------------------------------------------------------------------------------------

MAX_ROMAN = 4000
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_LATIN, _RUSSIAN = "abcdefghijklmnopqrstuvwxyz", "абвгдежзиклмнопрстуфхцчшщэюя"


class Numbering:
    """Counts the paragraphs of lists, as Word does when it shows them."""

    def __init__(self, numbering: Any, styles: Mapping[str, Any]) -> None:
        self._styles = styles
        found = numbering if numbering is not None else ()
        self._abstract = {each.get(f"{W}abstractNumId"): each for each in found if each.tag == f"{W}abstractNum"}
        self._lists = {each.get(f"{W}numId"): each for each in found if each.tag == f"{W}num"}
        self._counts: dict[str | None, dict[int, int]] = defaultdict(dict)
        """By the list's kind: lists of one kind go on with its numbers."""
        self._begun: set[tuple[str | None, int]] = set()

    def number(self, paragraph: Any) -> str:
        """What Word shows before a paragraph; the next one gets the next number."""
        properties = paragraph.find(f"{W}pPr")
        if properties is None or not self._lists:
            return ""
        chain = [paragraph, *bases(value(properties, "pStyle"), self._styles)]
        number_id = next((found for each in chain if (found := value(each, "pPr", "numPr", "numId"))), None)
        said = next((found for each in chain if (found := value(each, "pPr", "numPr", "ilvl"))), None)
        entry = self._lists.get(number_id)
        if entry is None or any(properties.find(f"{W}rPr/{W}{each}") is not None for each in ("del", "moveFrom")):
            return ""
        kind, levels = self._kind(entry)
        if said is None:  # a level may belong to a style
            named = value(properties, "pStyle")
            said = next((str(at) for at, each in levels.items() if named and value(each, "pStyle") == named), "0")
        level = int(said)
        counts = self._counts[kind]
        override = entry.find(f"{W}lvlOverride[@{W}ilvl='{level}']")
        restart = value(override, "startOverride") if override is not None else None
        if restart is not None and (number_id, level) not in self._begun:
            counts.pop(level, None)
        self._begun.add((number_id, level))
        counts[level] = counts[level] + 1 if level in counts else int(restart or self._start(levels, level))
        for deeper in [each for each in counts if each > level]:
            if value(levels[deeper], "lvlRestart") != "0" if deeper in levels else True:
                del counts[deeper]
        return self._shown(levels, counts, level)

    def _kind(self, entry: Any) -> tuple[str | None, dict[int, Any]]:
        kind = value(entry, "abstractNumId")
        abstract = self._abstract.get(kind)
        if abstract is not None and (linked := value(abstract, "numStyleLink")):
            style = self._styles.get(linked)
            other = self._lists.get(value(style, "pPr", "numPr", "numId") if style is not None else None)
            kind = value(other, "abstractNumId") if other is not None else None
            abstract = self._abstract.get(kind)
        levels = (
            {int(each.get(f"{W}ilvl", 0)): each for each in abstract.iterchildren(f"{W}lvl")}
            if abstract is not None
            else {}
        )
        levels |= {int(each.get(f"{W}ilvl", 0)): each for each in entry.iterfind(f"{W}lvlOverride/{W}lvl")}
        return kind, levels

    @staticmethod
    def _start(levels: Mapping[int, Any], level: int) -> str:
        return (value(levels[level], "start") if level in levels else None) or ("0" if level in levels else "1")

    def _shown(self, levels: Mapping[int, Any], counts: Mapping[int, int], level: int) -> str:
        if level not in levels:
            return ""
        shape = value(levels[level], "numFmt") or "decimal"
        text = value(levels[level], "lvlText") or ""
        if shape == "bullet":
            return "• " if text else ""
        legal = levels[level].find(f"{W}isLgl") is not None

        def counted(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            if at not in levels:
                return ""
            count = counts.get(at, int(self._start(levels, at)))
            return written_number(count, "decimal" if legal else value(levels[at], "numFmt") or "decimal")

        shown = re.sub(r"%(\d)", counted, text)
        return f"{shown} " if shown.strip() else ""


def written_number(count: int, shape: str) -> str:
    alphabet = {"Letter": _LATIN, "russian": _RUSSIAN}.get("Letter" if shape.endswith("Letter") else shape[:7])
    if shape in ("none", "bullet"):
        return ""
    if alphabet and count > 0:
        letters = alphabet[(count - 1) % len(alphabet)] * min(20, (count - 1) // len(alphabet) + 1)
    elif shape.endswith("Roman") and 0 < count < MAX_ROMAN:
        letters, rest = "", count
        for size, sign in _ROMAN:
            letters += sign * (rest // size)
            rest %= size
    else:
        return f"{count:02}" if shape == "decimalZero" else str(count)
    return letters.upper() if shape.startswith("upper") or shape.endswith("Upper") else letters


# -- formulas ----------------------------------------------------------------------------------------------------------

_PARTS = {
    "f": ("", "num", "/", "den"),
    "sSup": ("", "e", "^", "sup"),
    "sSub": ("", "e", "_", "sub"),
    "sSubSup": ("", "e", "_", "sub", "^", "sup"),
    "sPre": ("_", "sub", "^", "sup", "", "e"),
    "rad": ("", "deg", "√", "e"),
    "limLow": ("", "e", "_", "lim"),
    "limUpp": ("", "e", "^", "lim"),
}
"""Signs, each before a part of a formula."""
_LISTS = {"m": ("[", "; ", "]"), "mr": ("", ", ", ""), "eqArr": ("", "; ", "")}


def formula(element: Any) -> str:
    """The text of a formula, or a part of one, whose parts are told apart by parentheses."""
    kind = _kind(element)
    if kind in ("t", "delText"):
        return element.text or "" if kind == "t" else ""
    if kind in ("del", "moveFrom") or kind.endswith("Pr"):
        return ""
    children = [(_kind(each), each) for each in element if isinstance(each.tag, str)]
    texts = {name: formula(each) for name, each in children}
    if signs := _PARTS.get(kind):
        parts = zip(signs[::2], signs[1::2], strict=True)
        return "".join(sign + _grouped(text) for sign, name in parts if (text := texts.get(name, "")) or sign == "√")
    if kind == "nary":
        limits = "".join(sign + _grouped(texts[name]) for sign, name in (("_", "sub"), ("^", "sup")) if texts.get(name))
        return f"{_sign(element, 'chr', '∫')}{limits} {texts.get('e', '')}"
    if kind == "func":
        return f"{texts.get('fName', '')} {_grouped(texts.get('e', ''))}"
    if kind == "d":
        inside = _sign(element, "sepChr", "|").join(formula(each) for name, each in children if name == "e")
        return _sign(element, "begChr", "(") + inside + _sign(element, "endChr", ")")
    before, between, behind = _LISTS.get(kind, ("", "", ""))
    return before + between.join(filter(None, (formula(each) for _, each in children))) + behind


def _kind(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _sign(element: Any, name: str, usual: str) -> str:
    found = element.find(f"{{*}}{_kind(element)}Pr/{{*}}{name}")
    if found is None:
        return usual
    return next((str(said) for attribute, said in found.attrib.items() if attribute.endswith("}val")), "")


def _grouped(text: str) -> str:
    text = text.strip()
    return text if len(text) < 2 or text.isalnum() or (text[0] == "(" and text[-1] == ")") else f"({text})"
