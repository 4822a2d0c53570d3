"""What a provider says about a failure: for the one whose call it was, and what of it may be logged. Pure.

Such a text may quote the key and the prompt. Keys are masked wherever they stand, parts of them too. The caller's user
sees the rest; logs, status and other users only see words of a fixed vocabulary, which can hold nobody's message.
"""

import re
from collections.abc import Iterable

MAX_CHARS = 300
MAX_LOOKED_AT = 2000
MASK = "***"

_PART = 4
"""So many characters in a row of a key are masked; services show the last four."""
_SCHEMES = frozenset({"bearer", "basic", "token"})
_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_MASKED = re.compile(r"[*•.…]*\0[\0*•.…]*")
_MIN_WORDS = 2
_GAP = "…"

_WORDS = """
a an the this that your you is are was were be been has have had does do did not no or and of for to in on at by with
from it its as if can cannot could may must should please when only more than too either there any
incorrect invalid wrong missing expired revoked unknown unauthorized unauthenticated authentication authorization
authenticate forbidden denied permission access api key keys token tokens header headers credentials provided account
organization project billing credit credits balance quota plan payment subscription free trial insufficient exceeded
exceeds exceed reached limit limits limited rate usage upgrade
request requests body parameter parameters argument field value values required expected got type format json schema
allowed supported unsupported support enable enabled disabled tool tools function functions image images vision stream
streaming temperature role content messages message input output prompt context length size window long large small
many maximum minimum
model models engine endpoint url path route page resource found exist exists available unavailable deprecated removed
loaded loading load pull server service services overloaded capacity busy internal error errors failed failure timeout
timed connection connect refused gateway bad upstream provider returned response temporarily currently try again later
retry maintenance region country location blocked method
"""
"""Grammar; keys and accounts; requests; places and states."""
_VOCABULARY = frozenset(_WORDS.split())


def shown(text: str, secrets: Iterable[str]) -> str:
    """A provider's text on one line, printable, short, and without any part of the secrets."""
    plain = "".join(char if char.isprintable() else " " for char in text[:MAX_LOOKED_AT])
    line = " ".join(masked(" ".join(plain.split()), secrets).split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1].rstrip() + _GAP


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text with everything hidden that it shares with a secret."""
    low = text.lower()
    if len(low) != len(text):  # a few letters grow; then keys are found in the case they have
        low = text
    hidden = bytearray(len(text))
    for part in _parts(secrets):
        length = min(_PART, len(part))
        windows = {part[start : start + length] for start in range(len(part) - length + 1)}
        for start in range(len(low) - length + 1):
            if low[start : start + length] in windows:
                hidden[start : start + length] = b"\1" * length
    if not any(hidden):
        return text
    return _MASKED.sub(MASK, "".join("\0" if hide else char for char, hide in zip(text, hidden, strict=True)))


def loggable(text: str) -> str:
    """The words of the fixed vocabulary in it, with a sign where others were left out; empty for hardly any."""
    kept: list[str] = []
    count = 0
    for word in _WORD.findall(text[:MAX_LOOKED_AT]):
        known = word.lower() in _VOCABULARY
        count += known
        if known or kept[-1:] != [_GAP]:
            kept.append(word if known else _GAP)
    line = " ".join(kept)
    return line[:MAX_CHARS] if count >= _MIN_WORDS else ""


def _parts(secrets: Iterable[str]) -> Iterable[str]:
    """The words of secrets, without that of an ``Authorization`` header that is none."""
    return {word.lower() for secret in secrets for word in secret.split() if word.lower() not in _SCHEMES}
