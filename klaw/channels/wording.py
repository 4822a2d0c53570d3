"""What Klaw says in messengers of its own accord, in the two languages that it is tested in."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import klaw.web

_CYRILLIC = re.compile("[а-яё]", re.IGNORECASE)
LONGEST = 2_000
"""Characters of a line with names in it that is translated."""
_MARKUP = re.compile(r"([!-/:-@\[-`{-~])")


def language_of(language: str, *texts: str) -> str:
    """``ru`` or ``en``: by the letters of a person's name and words, else what the messenger says of them."""
    return "ru" if language.lower().startswith("ru") or any(map(_CYRILLIC.search, texts)) else "en"


def escaped(text: str) -> str:
    """Text as Markdown that shows just this text, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def say(what: str, language: str, /, **values: object) -> str:
    """A text of ``wording.json`` as Markdown, with the values in their places."""
    return _texts()[what][language].format(**values)


def translated(text: str, language: str) -> str:
    """What the server says in English, line by line in the language, as far as the page has words for it."""
    return text if language != "ru" else "\n".join(map(_in_russian, text.split("\n")))


def _in_russian(line: str) -> str:
    """A line with its indentation; of a list of commands, what stands behind the command."""
    if listed := re.fullmatch(r"(\s*/\w+\s+)(.+)", line):
        return listed[1] + _in_russian(listed[2])
    begin, text = re.fullmatch(r"(\s*)(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    if text in russian():
        return str(begin) + russian()[text]
    for pattern, found in _forms() if len(text) < LONGEST else ():
        if fits := pattern.fullmatch(text):
            return str(begin) + _filled(found, fits.groupdict())
    return line


def _filled(form: str, named: Mapping[str, str]) -> str:
    """A text with the values of its names. Those with a capital are texts of the server themselves."""
    values = {name: _in_russian(value) if name[0].isupper() else value for name, value in named.items()}
    return re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], name[0]), form)


@cache
def russian() -> Mapping[str, str]:
    """The page's English and Russian texts. Blocks when it is first asked."""
    found: dict[str, str] = json.loads((Path(klaw.web.__file__).parent / "static" / "ru.json").read_text())
    return found


@cache
def _forms() -> Sequence[tuple[re.Pattern[str], str]]:
    """Texts with names in braces as patterns, the longest first."""
    with_names = sorted((text for text in russian() if "{" in text), key=len, reverse=True)
    return [
        (re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(text))), russian()[text]) for text in with_names
    ]


@cache
def _texts() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("wording.json").read_text())
    return found
