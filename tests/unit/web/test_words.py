"""The page in Russian."""

import json
import re
from pathlib import Path

import klaw.web

STATIC = Path(klaw.web.__file__).parent / "static"


def test_what_the_page_says_has_russian_words():
    """Texts that are made of others are told by the views, so they are not looked for here."""
    russian = json.loads((STATIC / "ru.json").read_text())
    code = "\n".join(path.read_text() for path in STATIC.rglob("*.js"))
    said = set(re.findall(r'\bt\("((?:[^"\\]|\\.)+)"', code))
    assert said - russian.keys() == set()


def test_the_page_is_light():
    assert sum(path.stat().st_size for path in STATIC.rglob("*.js")) <= 120 * 1024
