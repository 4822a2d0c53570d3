"""What Klaw says in messengers of its own accord, in the two languages that it is tested in."""

import json
import re
from functools import cache
from pathlib import Path

_CYRILLIC = re.compile("[а-яё]", re.IGNORECASE)
_MARKUP = re.compile(r"([!-/:-@\[-`{-~])")


def language_of(language: str, *texts: str) -> str:
    """``ru`` or ``en``: what the messenger says of a person, else by the letters of their name and words."""
    if language:
        return "ru" if language.lower().startswith("ru") else "en"
    return "ru" if any(map(_CYRILLIC.search, texts)) else "en"


def escaped(text: str) -> str:
    """Text as Markdown that shows just this text, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def say(what: str, language: str, /, **values: object) -> str:
    """A text of ``wording.json`` as Markdown, with the values in their places."""
    return _texts()[what][language].format(**values)


@cache
def _texts() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("wording.json").read_text())
    return found
