"""Markdown becomes messages that Telegram takes: every construct, and texts that nobody would write."""

import re
import unicodedata

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from klaw.channels.markup import StyledText, cut, is_blank, split, styled
from klaw.channels.telegram import Telegram, to_html
from tests.support.plugins.golden import Golden
from tests.support.repository import REPOSITORY
from tests.support.services.telegram_rules import MAX_UNITS, parsed, units

TELEGRAM = Telegram("1:x", "http://service")

SECTIONS = re.split(r"^=== (.+)\n", (REPOSITORY / "tests/data/constructs.md").read_text("utf-8"), flags=re.MULTILINE)
CONSTRUCTS = {name: text.removesuffix("\n") for name, text in zip(SECTIONS[1::2], SECTIONS[2::2], strict=True)}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_every_construct_of_markdown(name: str, golden: Golden) -> None:
    parts = TELEGRAM.render(CONSTRUCTS[name])
    for part in parts:
        parsed(part.formatted, "HTML")
    shown = "\n--- next message ---\n".join(f"{part.formatted}\n--- plain ---\n{part.text}" for part in parts)
    golden(f"channels/telegram/{name.replace(' ', '_')}", f"{CONSTRUCTS[name]}\n--- HTML ---\n{shown}\n")


@pytest.mark.parametrize(
    "text", ["", " \n\t\n", "\u200b", "```\n```", "\u2800", "&nbsp;", "***", "[a]: https://a.example"]
)
def test_nothing_is_made_of_nothing(text: str) -> None:
    assert [part.text for part in TELEGRAM.render(text)] in ([], ["────────────"])


LETTERS = st.text(
    st.one_of(
        st.sampled_from("abc xyz.!? \n\n\t123"),
        st.sampled_from("*_`~#>-+=|[]()<>&\\$^:!\"'{}/@"),
        st.sampled_from("éжשع漢字हिกา한\u0301\u200d\ufe0f\u200b\u202e👨👩👧🏽🇩🇪☕"),
        st.characters(),
    ),
    max_size=60,
)
PIECES = st.one_of(
    LETTERS,
    st.sampled_from(
        [
            "\n\n",
            "\n",
            "```py\n",
            "\n```\n",
            "> ",
            "- ",
            "  - ",
            "1. ",
            "**",
            "*",
            "~~",
            "`",
            "| a | b |\n|---|---|\n| ",
            "# ",
        ]
    ),
    st.sampled_from(
        [
            "[a](https://a.example/b)",
            "<https://a.example>",
            "https://b.example/(x)",
            "![",
            "](",
            "[x]: https://x.example\n",
            "$$",
            "\\[",
        ]
    ),
    st.sampled_from(
        ["👨‍👩‍👧‍👦" * 5, "e\u0301" * 9, "word " * 30, "字" * 50, "-" * 80, "[link text here](https://a.example)" * 3]
    ),
)
MARKDOWN = st.lists(PIECES, max_size=40).map("".join)


def boundaries(whole: str, parts: list[str]) -> list[int]:
    """Where each part begins and ends in the whole text, of which only blanks may be missing."""
    found, at = [], 0
    for part in parts:
        begin = whole.index(part, at)
        assert not whole[at:begin].strip() or is_blank(whole[at:begin]), "something was lost"
        at = begin + len(part)
        found += [begin, at]
    assert is_blank(whole[at:]), "something was lost at the end"
    return found


@given(MARKDOWN)
def test_telegram_takes_every_text(markdown: str) -> None:
    for part in TELEGRAM.render(markdown):
        text, _ = parsed(part.formatted, "HTML")
        parsed(part.text, None)
        assert units(text) <= MAX_UNITS


@given(MARKDOWN, st.integers(16, 200))
@example("a\u0301" * 40, 16)
@example("[" + "word " * 30 + "](https://a.example) tail", 40)
def test_parts_are_short_and_whole(markdown: str, most: int) -> None:
    whole = styled(markdown)
    parts = cut(whole, lambda text: units(text.text) <= most)
    begins = {found.start() for found in regex.finditer(r"\X", whole.text)} | {len(whole.text)}
    longest = max((units(found[0]) for found in regex.finditer(r"\X", whole.text)), default=0)
    for part in parts:
        text, _ = parsed(to_html(part), "HTML")
        assert units(text) <= most
    for at in boundaries(whole.text, [part.text for part in parts]):
        assert longest > most or at in begins, "a grapheme was cut"
        for begin, end, _ in whole.ranges("link"):
            assert not begin < at < end or units(whole.text[begin:end]) > most, "a link was cut"
    for part in parts:
        mark = part.text[0]
        assert (
            longest > most
            or part is parts[0]
            or not unicodedata.category(mark).startswith("M")
            or mark in whole.text[:1]
        )


@given(
    st.lists(
        st.sampled_from(["x = 1", "", "    y = 2", "字" * 20, "  # " + "long comment " * 9]), min_size=1, max_size=40
    ),
    st.integers(60, 200),
)
def test_code_that_goes_on_keeps_its_language_and_every_line(lines: list[str], most: int) -> None:
    code = "\n".join(["begin", *lines, "end"])
    whole = styled(f"before\n\n```py\n{code}\n```\n\nafter")
    parts = cut(whole, lambda text: units(text.text) <= most)
    inside = []
    for part in parts:
        text, entities = parsed(to_html(part), "HTML")
        assert {each.value for each in entities} <= {"py"}
        inside += [
            text.encode("utf-16-le")[2 * each.offset : 2 * (each.offset + each.length)].decode("utf-16-le")
            for each in entities
        ]
    assert "".join(inside).replace("\n", "").replace(" ", "") == code.replace("\n", "").replace(" ", "")
    assert all(line in "\n".join(inside).split("\n") for line in ("begin", "end") if len(line) <= most)


WORDS = st.lists(
    st.sampled_from(["alpha", "Бета", "γάμμα", "דלת", "五行", "zeta7", "naïve"]), min_size=1, max_size=12
).map(" ".join)
BLOCKS = st.one_of(
    WORDS,
    WORDS.map("# {}".format),
    WORDS.map("**{}**".format),
    WORDS.map("*{}* tail".format),
    WORDS.map("- {0}\n- {0}\n  1. {0}".format),
    WORDS.map("- [x] {}".format),
    WORDS.map("> {0}\n> > {0}".format),
    WORDS.map("```js\n{}\n```".format),
    WORDS.map("| {0} | b |\n|---|---|\n| c | {0} |".format),
    WORDS.map("[{}](https://link.example/path)".format),
    WORDS.map("[{}](docs/file.md)".format),
    WORDS.map("![{}](https://picture.example/x.png)".format),
    WORDS.map("<div>{}</div>".format),
)


@given(st.lists(BLOCKS, min_size=1, max_size=30), st.integers(30, 300))
def test_no_word_is_lost(blocks: list[str], most: int) -> None:
    parts = cut(styled("\n\n".join(blocks)), lambda text: units(text.text) <= most)
    shown = " ".join(part.text for part in parts)
    for word in ("alpha", "Бета", "γάμμα", "דלת", "五行", "zeta7", "naïve"):
        assert shown.count(word) == "\n\n".join(blocks).count(word)
    addresses = " ".join(part.plain for part in parts)
    assert ("link.example" in addresses) == any("link.example" in block for block in blocks)


@given(MARKDOWN, st.integers(30, 200))
@example("- a\n\n  ```py\n  " + "x = 1\n  " * 30 + "```\n- b", 60)
@example("> ```py\n> " + "x = 1\n> " * 30 + "```\n\nb", 60)
@example("```py\n" + "y" * 300 + "\n```", 50)
def test_split_pieces_fit_and_lose_nothing(markdown: str, most: int) -> None:
    pieces = split(markdown, lambda piece: len(piece.encode("utf-8", "surrogatepass")) <= most)
    for piece in pieces:
        assert piece.strip()
        assert len(piece.encode("utf-8", "surrogatepass")) <= most or len(piece) <= 80
    letters = re.compile(r"[^\W_]")
    together = iter(letters.findall("\n".join(pieces)))
    assert all(letter in together for letter in letters.findall(markdown)), "only languages of code are said again"


def test_split_closes_code_and_opens_it_again() -> None:
    code = "\n".join(f"line {number}" for number in range(40))
    pieces = split(f"Before.\n\n```python title\n{code}\n```\n\nAfter.", lambda piece: len(piece) <= 100)
    assert pieces[0] == "Before."
    assert all(piece.startswith("```python\n") and piece.endswith("\n```") for piece in pieces[2:-2])
    assert "\n".join(re.findall(r"line \d+", "\n".join(pieces))) == code
    assert pieces[-1].endswith("After.")


def test_a_cut_stands_between_paragraphs_then_lines_then_sentences_then_words() -> None:
    def halves(text: str) -> list[str]:
        return [part.text for part in cut(StyledText(((text, ()),)), lambda part: len(part.text) <= 40)]

    assert halves("One two. Three\nfour five six.\n\nSeven eight nine.") == [
        "One two. Three\nfour five six.",
        "Seven eight nine.",
    ]
    assert halves("One two three four five.\nSix. Seven eight nine ten") == [
        "One two three four five.",
        "Six. Seven eight nine ten",
    ]
    assert halves("One two three four five six. Seven eight nine ten") == [
        "One two three four five six.",
        "Seven eight nine ten",
    ]
    assert halves("一二三四五六七八九十一二三四五六七八九十一二三四五六七八九十。一二三四五六七八九十一二三四五") == [
        "一二三四五六七八九十一二三四五六七八九十一二三四五六七八九十。",
        "一二三四五六七八九十一二三四五",
    ]
    assert halves("word " * 12) == [("word " * 8).strip(), ("word " * 4).strip()]
    assert halves("x" * 50) == ["x" * 40, "x" * 10]


def test_an_emoji_at_the_border_is_in_one_message() -> None:
    family = "👨‍👩‍👧‍👦"
    parts = TELEGRAM.render("x" * 4090 + family + "y")
    assert [part.text for part in parts] == ["x" * 4090, family + "y"]
    parts = TELEGRAM.render("x" * 4094 + "🙂🙂")
    assert [part.text for part in parts] == ["x" * 4094 + "🙂", "🙂"]


def test_a_link_stays_whole_and_one_without_an_end_is_cut() -> None:
    parts = TELEGRAM.render("word " * 815 + "[a link of several words](https://a.example/x)")
    assert parts[-1].formatted == '<a href="https://a.example/x">a link of several words</a>'
    parts = TELEGRAM.render(f"[{'word ' * 1000}](https://a.example/x)")
    assert len(parts) == 2
    assert all(part.formatted.startswith('<a href="https://a.example/x">') for part in parts)
    parts = TELEGRAM.render("https://a.example/" + "x" * 5000)
    assert "".join(part.formatted.count("x") * "x" for part in parts)


def test_no_message_has_more_styles_than_are_shown() -> None:
    parts = TELEGRAM.render("**b** " * 250)
    assert len(parts) == 3
    assert sum(part.formatted.count("<b>") for part in parts) == 250


def test_a_text_as_long_as_a_book() -> None:
    parts = TELEGRAM.render("Some words of *one* paragraph, again and again.\n\n" * 2000)
    assert sum(part.formatted.count("<i>one</i>") for part in parts) == 2000
