"""What WhatsApp itself writes into a chat, in many languages. Pure."""

import re
from unicodedata import normalize

from klaw.imports.whatsapp_time import MARKS, WORDS


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("\n", ""), re.IGNORECASE)


LEFT_OUT = _pattern(WORDS["left_out"])
"""A picture, a recording, a document that the export does not have."""
EDITED = _pattern(WORDS["edited"])
_ATTACHED = WORDS["attached"].replace("\n", "")
_ATTACHED_TOO = WORDS["attached_too"].replace("\n", "")
_FILE = re.compile(
    rf"\u200e<[^:<>\n]{{1,40}}:\s?(?P<a>[^<>\n]{{1,255}})>"
    rf"|<(?:{_ATTACHED})[^:<>\n]{{0,20}}:\s?(?P<b>[^<>\n]{{1,255}})>"
    rf"|^[{MARKS}]*(?P<c>(?:IMG|VID|AUD|PTT|STK|DOC)-\d{{8}}-WA\d{{4,8}}\.\w{{2,5}}) \([^()\n]{{3,60}}\)"
    rf"|^\u200e(?P<d>\S[^\n]{{0,255}}?\.\w{{2,5}}) \([^()\n]{{3,60}}\)"
    rf"|^[{MARKS}]*(?P<e>\S[^\n]{{0,255}}?\.\w{{2,5}}) "
    rf"\((?:[^()\n]{{0,30}}(?:{_ATTACHED}|{_ATTACHED_TOO})[^()\n]{{0,30}})\)",
    re.IGNORECASE | re.MULTILINE,
)
_DOCUMENT = re.compile(r"\u200e?(\S[^\n\u200e]{0,254}\.\w{2,5})(?: • \u200e[^\n\u200e]{1,40})? ?\u200e(?=\S)")
"""On an iPhone: its name, its pages, and whether it is there."""
_NOTE = re.compile(r"[ \n]?\u200e?<([^<>:\n]{3,80})>\s*\Z")
_PROGRAMS = _pattern(WORDS["encryption"])
_MESSAGES = re.compile(rf"\W*(?:{WORDS['messages']})".replace("\n", ""), re.IGNORECASE)
"""A notice of encryption."""
_COLON = _pattern(WORDS["notices"])
_YOU = frozenset(
    ["you", "you're", "вы", "du", "sie", "vous", "tú", "usted", "você", "tu", "hai", "ви", "siz", "u", "jij"]
)
_QUOTES = (("“", "”"), ("„", "“”"), ("«", "»"), ("「", "」"), ("『", "』"), ("‘", "’"))
MOST_WORDS = 8
MOST_PLACEHOLDER, MOST_GONE = 60, 120
_SIGNS = re.compile(r"[<(\u200e]")
"""Without one of them it is only a text."""


def _normal(text: str) -> str:
    plain = re.sub(f"[{MARKS}]", "", normalize("NFKC", text)).casefold().replace("’", "'").replace("‘", "'")
    return " ".join(plain.split()).rstrip(".。।۔ ")


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(_normal, text.split("|"))))


GONE = _listed(WORDS["gone"])
"""Deleted messages, missed calls, and media that were not exported, without any mark."""
_WAITING = tuple(_listed(WORDS["waiting"]))


def _is_gone(text: str) -> bool:
    if len(text) > MOST_GONE:
        return False
    plain = _normal(text)
    return text.strip() == "null" or plain in GONE or plain.startswith(_WAITING)


def _is_programs(text: str) -> bool:
    return _is_gone(text) or bool(_MESSAGES.match(text) and _PROGRAMS.search(text[:100]))


def is_of_person(text: str, is_marked: bool) -> bool:
    """Whether a person sent it, if only what was deleted or not exported."""
    first = text.partition("\n")[0][:100]
    is_placeholder = len(first) < MOST_PLACEHOLDER and ("<" in first or (is_marked and "\u200e" in first))
    return bool(
        not text.strip() or _is_gone(text) or (is_placeholder and LEFT_OUT.search(first)) or said(text, is_marked)[0]
    )


def is_sender(name: str, known: dict[str, int]) -> bool:
    """Whether a name, and not the beginning of a notice, stands before a colon. ``known``: how often each does in the
    chat."""
    if any(name.rfind(opening) > max(map(name.rfind, closing)) for opening, closing in _QUOTES) or name.count('"') % 2:
        return False
    words, count = name.split(), known.get(name, 0)
    if _COLON.search(name) is not None or (len(words) > MOST_WORDS and count < 2):
        return False
    for size in range(1, len(words) - 1):
        other = " ".join(words[:size])
        if sum(each[0].isupper() for each in words[size:]) * 2 >= len(words) - size:
            continue  # so go names on, and no sentences
        is_known = known.get(other.removesuffix("'s").removesuffix("’s"), 0) > count and len(words) - size > 2
        if is_known or other.casefold() in _YOU:
            return False
    return True


def said(text: str, is_marked: bool) -> tuple[str, list[str]]:
    """What a person wrote, files in brackets, and the names of these files. Empty: it was the program.

    ``is_marked``: an iPhone puts U+200E before what the program writes.
    """
    if not _SIGNS.search(text):
        return "" if _is_programs(text) else re.sub(f"[{MARKS}]", "", text).strip(), []
    files: list[str] = []

    def file(found: re.Match[str]) -> str:
        files.append(next(filter(None, found.groups())).strip())
        return f"[file: {files[-1]}]"

    if is_marked and (document := _DOCUMENT.match(text)) is not None:
        behind = text[document.end() - 1 :]
        there, _, more = behind.partition("\n")
        text = behind if there.startswith("\u200e<") else f"[file: {document[1]}]\n{more}".rstrip()
    text = _FILE.sub(file, text)
    if (note := _NOTE.search(text)) is not None and (EDITED.search(note[1]) or (is_marked and "\u200e" in note[0])):
        text = text[: note.start()]
    first, _, more = text.partition("\n")
    bare = re.fullmatch(rf"[{MARKS}]*<\s?([^<>\n]{{2,80}})>\s*", first)
    is_programs = is_marked and first.startswith("\u200e") and not first.rstrip().endswith((":", "："))
    if (bare and LEFT_OUT.search(bare[1])) or (is_programs and "://" not in first):
        text = more
    elif is_marked and "\u200e" in first:
        before, _, behind = first.rpartition("\u200e")
        if len(behind) < MOST_PLACEHOLDER and LEFT_OUT.search(behind):
            text = "\n".join(filter(None, (before.rstrip(), more)))
    if _is_programs(text):
        text = ""
    return re.sub(f"[{MARKS}]", "", text).strip(), files
