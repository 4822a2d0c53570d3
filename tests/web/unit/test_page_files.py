"""What can be said of the page's files without a browser."""

import re

import pytest

from klaw.api.page import STATIC, first_modules

CSS = (STATIC / "style.css").read_text()
JS = {path.relative_to(STATIC).as_posix(): path.read_text() for path in STATIC.rglob("*.js")}
PAIRS = [
    ("--text", "--back"), ("--text", "--side"), ("--text", "--mine"), ("--text", "--code"), ("--quiet", "--back"),
    ("--quiet", "--side"), ("--quiet", "--mine"), ("--main", "--back"), ("--main-text", "--main"),
    ("--error", "--back"), ("--warn", "--warn-back"),
]  # fmt: skip


def palette(theme):
    """The colours of a theme, by name."""
    (block,) = re.findall(re.escape(theme) + r" \{(.*?)\}", CSS, re.DOTALL)[:1]
    return dict(re.findall(r"(--[a-z-]+): (#[0-9a-f]+);", block))


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [":root", "[data-theme=dark]"])
@pytest.mark.parametrize(("front", "back"), PAIRS)
def test_text_can_be_read(theme, front, back):
    colours = palette(theme)
    light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_the_javascript_is_small():
    first = first_modules()
    assert sum(len(text.encode()) for name, text in JS.items() if name in first) <= 69_000
    assert sum(len(text.encode()) for text in JS.values()) <= 186_500
    assert [line for text in JS.values() for line in text.splitlines() if len(line) > 120] == []


def test_the_first_view_does_not_load_the_others():
    first = first_modules()
    assert {"app.js", "api.js", "views/chats.js", "views/chat.js"} <= first <= set(JS)
    assert not first & {
        "views/memory.js",
        "views/knowledge.js",
        "views/tasks.js",
        "views/usage.js",
        "views/system.js",
        "views/made_from.js",
    }


def test_sizes_stand_in_one_place():
    """In ``:root``; elsewhere only hairlines, and what follows from the screen."""
    rules = re.sub(r"/\*.*?\*/|@media [^{]*|:root \{.*?\}", "", CSS, flags=re.DOTALL)
    assert re.findall(r"(?<![\w-])(?:\d*\.)?\d+(?:r?em|ch|pt)\b|(?<![\w-])(?!-?[012]px)-?[\d.]+px", rules) == []
    used, defined = set(re.findall(r"var\((--[\w-]+)\)", CSS)), set(re.findall(r"(--[\w-]+): ", CSS))
    assert used == defined


def test_every_sign_is_drawn_and_every_drawing_used():
    drawn = set(re.findall(r'<symbol id="(\w+)"', (STATIC / "icons.svg").read_text()))
    assert {
        "".join(each) for text in JS.values() for each in re.findall(r'\b(?:icon|iconButton|go)\("(\w+)"', text)
    } | {path for path, of in re.findall(r'path: "(\w+)", name: "\w+"(, within)?', JS["views.js"]) if not of} == drawn
    assert not re.findall(r"[✉❐❋◔∑⚙⋯✕‹›◐◌]", "".join(JS.values()))


def test_nothing_is_loaded_from_elsewhere():
    for text in [CSS, (STATIC / "index.html").read_text(), *JS.values()]:
        assert not re.findall(r"""["'(]\s*(?:https?:)?//(?!www\.w3\.org/)[a-z]""", text)
