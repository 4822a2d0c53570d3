"""Answers in Markdown: what stands on the screen while they come and afterwards, whatever is in them."""

import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from klaw.client.editor import View
from klaw.client.markdown import render
from klaw.client.screen import Foot, Screen
from klaw.domain.text_width import width
from klaw.web.markdown_rules import whole_blocks
from tests.client.unit.small_terminal import SmallTerminal

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def rows(text: str, columns: int = 40) -> list[str]:
    return [_STYLE.sub("", row) for row in render(text, columns)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Сад\nHow **bold** and `vector<int>`", ["Сад", "", "How bold and vector<int>"]),
        ("one\ntwo", ["one", "two"]),
        ("- раз\n- два\n  1. three", ["• раз", "• два", "  1. three"]),
        ("9. nine\n10. ten", [" 9. nine", "10. ten"]),
        ("- a\n\n  b\n- c", ["• a", "", "  b", "", "• c"]),
        ("```python\nif x:\n    return y\n```", ["if x:", "    return y"]),
        ("> сказано\n> so", ["▌ сказано", "▌ so"]),
        ("[сад](https://example.org/Сад) <b>x</b>", ["сад (https://example.org/Сад) <b>x</b>"]),
        (r"So \(a_1\) and \[b\], $c_1$.", [r"So \(a_1\) and \[b\], $c_1$."]),
        ("$$\na_1\n- b\n$$", ["$$", "a_1", "- b", "$$"]),
        ("![cat](https://example.org/c.png)", ["cat (https://example.org/c.png)"]),
        (
            "| a | число |\n|---|--:|\n| Калитка | 12 |",
            ["a        число", "───────  ─────", "Калитка     12"],
        ),
        ("Садовая **калитка** открыта, the gate stands open.", ["Садовая калитка открыта, the gate stands", "open."]),
        ("彼は「はい」と言った。" * 3, ["彼は「はい」と言った。彼は「はい」と言っ", "た。彼は「はい」と言った。"]),
    ],
)  # fmt: skip
def test_blocks(text: str, shown: list[str]) -> None:
    assert rows(text) == shown


def test_nothing_of_a_narrow_table_is_cut_off() -> None:
    table = "| what | where |\n|---|---|\n| Садоваякалиткаслева | 花园的门开着花园的门开着 |"
    text = "".join(rows(table, 20)).replace(" ", "")
    assert "…" not in text
    for word in ("Садовая", "花园"):
        assert word in text


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one para", 0),
        ("one para\n\n", 0),
        ("one\n\ntwo", 0),  # "two" may become "two" or the end of an underline
        ("one\n\ntwo\n", 5),
        ("# head\ntext\n- a\n", 12),
        ("- a\n- b\n\n  more\n- c\n", 0),
        ("```\na\n\n# no heading\n", 0),
        ("```\na\n```\nthen\n", 10),
        ("| a |\n|---|\n| 1 |\n\nend\n", 19),
        ("Title\n===\nx\n", 10),
        ("$$\na\n- b\n", 0),
        ("$$\na\n- b\n$$\nx\n", 12),
        ("$$\na\n\nx\n", 6),
    ],
)
def test_a_block_is_whole_when_the_next_one_stands(text: str, whole: int) -> None:
    assert whole_blocks(text) == whole


PIECES = st.lists(
    st.text(st.sampled_from("ab я日🙂\n\n#-*`|>_[]()1.&;~<\t\\"), max_size=12)
    | st.sampled_from(["\n```\n", "| a | b |\n|---|---|\n", "- a\n", "1. b\n", "[x](http://y)", "&#x202e;", "\x1b[2J"]),
    max_size=12,
)  # fmt: skip


@settings(deadline=None)
@given(PIECES, st.integers(4, 40))
@example(["&#x202e;&#x9b;31m&#27;[2J`&#27;`[a](&#x202e;b)\n```&#27;\nx"], 30)
def test_no_text_draws_or_breaks_the_rendering(pieces: list[str], columns: int) -> None:
    for row in render("".join(pieces), columns):
        assert _STYLE.sub("", row).replace("\t", "").isprintable() or "\u200d" in row, row


@settings(deadline=None)
@given(PIECES, st.integers(4, 40), st.booleans())
@example(["para ", "one\n", "still\n\n- a", "\n- b\n\nend"], 20, True)
def test_the_picture_is_the_rendered_blocks_however_the_text_came(pieces: list[str], columns: int, foot: bool) -> None:
    """Nothing is left of what stood there while a block grew, also when it was higher than the screen."""
    text = "".join(pieces).replace("[x]", "x")  # no definitions of links: those reach over blocks
    whole, slow = [SmallTerminal(columns, 8) for _ in range(2)]
    screen = Screen(whole, whole.size, colours=True)
    screen.write("\n" + text)
    screen.end()
    screen = Screen(slow, slow.size, colours=True)
    screen.write("\n")
    for number, character in enumerate(text):
        screen.write(character)
        if foot and number % 3 == 0:
            screen.show(Foot(prompt="> ", view=View("x", 1), status="thinking" * (number % 2)))
    screen.end()
    screen.show(None)
    assert slow.picture == whole.picture


def test_without_colours_an_answer_stands_as_it_was_written() -> None:
    terminal = SmallTerminal(30)
    screen = Screen(terminal, terminal.size, colours=False)
    screen.write("# Сад\n\n**bold**")
    screen.end()
    assert terminal.picture == ["# Сад", "", "**bold**", ""]


def test_what_grows_is_shown_at_once_and_only_what_changes_is_written_again() -> None:
    terminal = SmallTerminal(30)
    written: list[str] = []
    screen = Screen(terminal, terminal.size, colours=True)
    keep = terminal.write
    terminal.write = lambda text: (written.append(text), keep(text))[1]
    for piece in ("The **gate** is", " shut.", "\n", "- one", "\n- two\n", "\nEnd", "\n"):
        screen.write(piece)
    assert written[:2] == ["The **gate** is", " shut."]
    assert terminal.picture == ["The gate is shut.", "", "• one", "• two", "", "End"]
    assert all(width(row) <= 30 for row in terminal.picture)


def test_only_what_draws_on_a_terminal_imports_it() -> None:
    program = (
        "import sys, klaw.app.serve, klaw.cli.operations, klaw.cli.main, klaw.cli.chat, klaw.client.pipe;"
        "klaw.cli.main.parser(['--help']); print({'klaw.client.markdown', 'klaw.client.screen'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_would_take_long_is_shown_as_it_is() -> None:
    """26.A3. Brackets take quadratic time; so do the colours of some languages, which took minutes for these blanks."""
    assert "".join(rows("[" * 400_000, 80)) == "[" * 400_000
    code = "x" + " " * 8_000 + "y"
    for language in ("autoit", "autohotkey", "csharp", "python"):
        shown = render(f"```{language}\n{code}\n```", 80)
        assert "\x1b[36mx" in shown[0], language
    assert "\x1b[35mimport" in render("```python\nimport this\n```", 80)[0]
