"""Which marks ``[n]`` of an answer are valid. Pure.

A mark is valid when passage n was given, and what the answer quotes beside it stands there. Invalid ones are removed,
the others written as ``[1][2]``. Code, links, and definitions of links and footnotes are left alone. Every pattern runs
in linear time: an answer may be hostile.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import attrs

from klaw.domain.text import folded

MOST = 99
"""The highest number of a mark; ``[2024]`` is a year."""
LEAST_QUOTED, LEAST_WORDS = 20, 4
"""Characters and words of what counts as a quotation: shorter ones are names and titles."""
BESIDE = 60
"""Characters between a quotation and its mark."""
MOST_QUOTED = 2_000

_NUMBER = r"\^?\s{0,3}\d{1,2}"
_TOKENS = re.compile(
    rf"""(?P<code>`[^`\n]+`)
    | (?P<defined>^[ ]{{0,3}}\[\^?(?P<label>[^\]\n]{{1,80}})\]:[^\n]*$)
    | (?P<link>!?\[[^\[\]\n]{{0,300}}\]\([^()\n]{{0,1000}}\))
    | (?P<mark>\[\s{{0,3}}{_NUMBER}(?:\s{{0,3}}[-–—,;]\s{{0,3}}{_NUMBER}){{0,20}}\s{{0,3}}\]
        | 【\s{{0,3}}\d{{1,2}}[^】\n]{{0,40}}】)""",
    re.VERBOSE | re.MULTILINE,
)
_FENCE = re.compile(r"^[ ]{0,3}(```|~~~)", re.MULTILINE)
_PART = re.compile(r"(\d{1,2})(?:\s{0,3}[-–—]\s{0,3}\^?\s{0,3}(\d{1,2}))?")
_QUOTED = re.compile(
    rf"«([^«»]{{{LEAST_QUOTED},{MOST_QUOTED}}})» | “([^“”]{{{LEAST_QUOTED},{MOST_QUOTED}}})”"
    rf' | „([^„“”]{{{LEAST_QUOTED},{MOST_QUOTED}}})[“”] | "([^"\n]{{{LEAST_QUOTED},{MOST_QUOTED}}})"',
    re.VERBOSE,
)
_LEFT_OUT = re.compile(r"\[?(?:…|\.\.\.)\]?")
_BROKEN = re.compile(r"(?<=\w)[-\u00ad\u2010]\s*\n\s*(?=\w)|\u00ad")
"""A word that is hyphenated at the end of a line."""
_UNSAID = re.compile(r"[\s\"'`*_~«»“”„‘’‚‹›\-\u2010-\u2015\u2212]+")
"""What may differ between a quotation and its source: spaces, quotation marks, hyphens, emphasis."""


@attrs.frozen(kw_only=True)
class CheckedAnswer:
    text: str
    cited: frozenset[int] = frozenset()
    removed: int = 0
    """Marks that were removed, each number counted."""


@attrs.define
class _CitationMark:
    start: int
    end: int
    numbers: list[int]
    kept: list[int] = attrs.Factory(list)
    as_is: bool = False
    """``[^1]`` with a definition below stays a footnote."""

    def written(self, text: str) -> str:
        if self.as_is and self.kept == self.numbers:
            return text[self.start : self.end]
        return "".join(f"[{number}]" for number in self.kept)


def check(answer: str, passages: Mapping[int, str]) -> CheckedAnswer:
    """Remove the invalid marks of an answer to passages that were given, by number."""
    marks, code = _scan(answer)
    if not marks:
        return CheckedAnswer(text=answer)
    for mark in marks:
        mark.kept = [number for number in mark.numbers if number in passages]
    sources: dict[int, str] = {}
    for quoted, mark in _quotations(answer, marks, code):
        for number in mark.kept:
            if number not in sources:
                sources[number] = _plain(passages[number])
        if not any(_stands(quoted, sources[number]) for number in mark.kept):
            mark.kept = []
    return CheckedAnswer(
        text=_without(answer, marks),
        cited=frozenset(number for mark in marks for number in mark.kept),
        removed=sum(len(mark.numbers) - len(mark.kept) for mark in marks),
    )


def without_marks(text: str) -> str:
    """An earlier answer for the prompt: its numbers meant other passages."""
    marks, _ = _scan(text)
    return _without(text, marks) if marks else text


def _scan(text: str) -> tuple[list[_CitationMark], list[tuple[int, int]]]:
    marks: list[_CitationMark] = []
    code = _fenced(text)
    fences = iter([*code, (len(text), len(text))])
    fence = next(fences)
    notes: set[str] = set()
    links: set[str] = set()
    for token in _TOKENS.finditer(text):
        while token.start() >= fence[1]:
            fence = next(fences)
        if token.start() >= fence[0]:
            continue
        if token["mark"]:
            marks.append(_CitationMark(token.start(), token.end(), _numbers(token["mark"])))
        elif token["defined"]:
            (notes if "[^" in token[0] else links).add(token["label"])
        elif token["code"]:
            code.append(token.span())
    found: list[_CitationMark] = []
    for mark in marks:
        shown, behind_mark = text[mark.start : mark.end], bool(found) and found[-1].end == mark.start
        if shown.strip("[]") in links and text[mark.start - 1 : mark.start] == "]" and not behind_mark:
            continue  # [text][1]
        mark.as_is = shown.startswith("[^") and {str(each) for each in mark.numbers} <= notes
        found.append(mark)
    return found, sorted(code)


def _fenced(text: str) -> list[tuple[int, int]]:
    blocks: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    for each in _FENCE.finditer(text):
        if opened is None:
            opened = each
        elif each[1] == opened[1]:
            blocks.append((opened.start(), each.end()))
            opened = None
    return [*blocks, (opened.start(), len(text))] if opened is not None else blocks


def _numbers(mark: str) -> list[int]:
    """1, 2, 3 of ``[1-3]``. Of ``【1†source】`` the first number counts."""
    if mark.startswith("【"):
        found = _PART.search(mark)
        return [int(found[1])] if found else []
    numbers: list[int] = []
    for part in _PART.finditer(mark):
        first, last = int(part[1]), int(part[2] or part[1])
        numbers += range(first, last + 1) if first <= last else (first, last)
    return list(dict.fromkeys(numbers))


def _within(place: int, spans: list[tuple[int, int]]) -> bool:
    at = bisect_right(spans, (place, sys.maxsize)) - 1
    return at >= 0 and place < spans[at][1]


def _quotations(
    answer: str, marks: list[_CitationMark], code: list[tuple[int, int]]
) -> Iterator[tuple[str, _CitationMark]]:
    """Each quotation with the mark beside it: the next one behind it, else the last one before, in the same line."""
    place, found = 0, list(_QUOTED.finditer(answer))
    ends = [0, *(each.end() for each in found)]
    starts = [*(each.start() for each in found), len(answer)]
    for number, quotation in enumerate(found):
        quoted = next(filter(None, quotation.groups()))
        if len(quoted.split()) < LEAST_WORDS or _within(quotation.start(), code):
            continue
        while place < len(marks) and marks[place].start < quotation.start():
            place += 1
        after = next((mark for mark in marks[place : place + 50] if mark.start >= quotation.end()), None)
        before = marks[place - 1] if place else None
        if after is not None and after.start <= starts[number + 1] and _beside(answer, quotation.end(), after.start):
            yield quoted, after
        elif before is not None and before.end >= ends[number] and _beside(answer, before.end, quotation.start()):
            yield quoted, before


def _beside(answer: str, start: int, end: int) -> bool:
    return 0 <= end - start <= BESIDE and "\n" not in answer[start:end]


def _plain(text: str) -> str:
    return _UNSAID.sub("", folded(_BROKEN.sub("", text)))


def _stands(quoted: str, source: str) -> bool:
    place = 0
    for part in _LEFT_OUT.split(quoted):
        plain = _plain(part).strip(".,;:!?()[]")
        found = source.find(plain, place)
        if found < 0:
            return False
        place = found + len(plain)
    return True


def _without(text: str, marks: list[_CitationMark]) -> str:
    """The text with what each mark keeps; the space before one that is removed goes with it."""
    out: list[str] = []
    ends = [0, *(mark.end for mark in marks)]
    for end, mark in zip(ends, marks, strict=False):
        between, written = text[end : mark.start], mark.written(text)
        following = text[mark.end : mark.end + 1]
        if not written and (not following or following.isspace() or following in ".,;:!?)»”"):
            stripped = between.rstrip(" ")
            between = stripped if stripped and not stripped.endswith("\n") else between
        out += (between, written)
    return "".join((*out, text[ends[-1] :]))
