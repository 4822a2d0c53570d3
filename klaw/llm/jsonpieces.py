"""JSON that is still arriving: known tokens at its beginning, and the text of a string. Pure."""

import re
from collections.abc import Sequence

from klaw.domain.text import clean

_SPACE = re.compile(r"\s*")
_PLAIN = re.compile(r'[^"\\]+')
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_LOW = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")


def end_of_space(text: str, at: int = 0) -> int:
    """Where the white space at ``at`` ends."""
    space = _SPACE.match(text, at)
    return space.end() if space else at


def follow(text: str, at: int, tokens: Sequence[str]) -> int | None:
    """Where the tokens end, with white space between them; 0 if something else stands there, None if more is needed."""
    for token in tokens:
        at = end_of_space(text, at)
        part = text[at : at + len(token)]
        if part != token:
            return None if token.startswith(part) and at + len(part) == len(text) else 0
        at += len(token)
    return at


def unescape(text: str) -> tuple[str, int, bool]:
    """The beginning of a JSON string's content as far as it is certain, where that ends, and whether the closing
    quotation mark was found (it is counted in). What JSON does not allow is taken as it is, or becomes U+FFFD."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if plain := _PLAIN.match(text, at):
            found.append(plain[0])
            at = plain.end()
            continue
        if text[at] == '"':
            return "".join(found), at + 1, True
        character, end = _escape(text, at)
        if end == at:
            break
        found.append(character)
        at = end
    return "".join(found), at, False


def _escape(text: str, at: int) -> tuple[str, int]:
    """The character of the escape at ``at``, and where it ends: at ``at`` when more is needed."""
    kind = text[at + 1 : at + 2]
    if not kind:
        return "", at
    if kind != "u":
        return _ESCAPED.get(kind, kind), at + 2
    code = text[at + 2 : at + 6]
    if len(code) < 4:
        return "", at
    if not _HEX.fullmatch(code):
        return "\ufffd", at + 2
    unit, end = int(code, 16), at + 6
    if not 0xD800 <= unit < 0xDC00:
        return clean(chr(unit)), end
    following = text[end : end + 6]  # the other half of a character outside the first plane
    if len(following) < 6 and "\\u".startswith(following[:2]):
        return "", at
    if low := _LOW.fullmatch(following):
        return chr(0x10000 + ((unit - 0xD800) << 10) + int(low[1], 16) - 0xDC00), end + 6
    return "\ufffd", end
