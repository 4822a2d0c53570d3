"""Markdown as Matrix shows it: every construct, and that nothing else comes out than what the specification allows."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.channels.matrix_html import render, to_html

CONSTRUCTS = {
    "paragraphs": "One\nline.\n\nTwo  \nlines\\\nagain.",
    "headings": "# One\n\n## Two\n\n### Three #\n\n#### Four\n\n##### Five\n\n###### Six\n\nSetext\n===\n\nother\n---",
    "emphasis": "*em* _em_ **strong** __strong__ ***both*** ~~gone~~ snake_case_name 2*3*4",
    "code": "`x < 1` ``a ` b``\n\n    indented\n    code\n\n```python title\nprint('<b>')\n```\n\n~~~\nplain\n~~~",
    "quotes": "> one\n> two\n>\n> > three\n\nafter",
    "lists": "- a\n- b\n  - c\n    1. d\n    2. e\n\n3. three\n4. four\n\n* loose\n\n* items",
    "tasks": "- [ ] to do\n- [x] done\n- [ ] `code`",
    "tables": "| a | b |\n|:--|--:|\n| 1 | **2** |\n| `x\\|y` | <b> |",
    "links": "[text](https://example.org/a?b=1&c=2 'title') <https://example.org> https://example.org/bare. [ref]\n\n"
    "[ref]: https://example.org/ref",
    "addresses": "[mail](mailto:a@example.org) [bad](javascript:alert(1)) [data](data:text/html,x) [room](matrix:r/a)"
    " [relative](/etc/passwd)",
    "images": '![a cat](https://example.org/cat.png "Cat") ![](https://example.org/b.png) ![x](javascript:y)',
    "rules": "above\n\n---\n\nbelow\n\n***",
    "html": "<b>bold</b> <script>alert(1)</script>\n\n<div onclick='x'>\nblock\n</div>\n\n<!-- comment --> &copy; &lt;",
    "formulas": "$x^2 < 1$ and $5 or $6\n\n$$\n\\frac{a}{b}\n$$\n\n\\(y\\) \\[z\\]",
    "footnotes": "Said so[^1].\n\n[^1]: By whom.",
    "scripts": "Привет **мир**. مرحبا *بالعالم*. 你好，世界！ 👩‍👩‍👧‍👦 e\u0301",
    "escapes": '\\*not em\\* \\[not a link\\] \\`no code\\` & < > "',
}
ALLOWED = {
    **dict.fromkeys(
        (
            "del", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "p", "ul", "sup", "sub", "li", "b", "i", "u",
            "strong", "em", "s", "hr", "br", "table", "thead", "tbody", "tr", "th", "td", "caption", "pre", "details",
            "summary",
        ),
        frozenset[str](),
    ),
    "a": frozenset({"href"}),
    "ol": frozenset({"start"}),
    "code": frozenset({"class"}),
    "span": frozenset({"data-mx-maths"}),
    "div": frozenset({"data-mx-maths"}),
}  # fmt: skip
"""What the specification of clients lists (``org.matrix.custom.html``), as far as Klaw uses its attributes."""
EMPTY = {"br", "hr"}


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.deepest = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        for name, value in attrs:
            assert name in ALLOWED[tag], (tag, name)
            if name == "href":
                assert re.match(r"(?:https?://|mailto:)", value or ""), value
            if name == "class":
                assert (value or "").startswith("language-")
        if tag not in EMPTY:
            self.open.append(tag)
            self.deepest = max(self.deepest, len(self.open))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(html: str) -> None:
    checker = _Checker()
    checker.feed(html)
    checker.close()
    assert not checker.open
    assert checker.deepest <= 100


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_construct(name: str, golden) -> None:
    (part,) = render(CONSTRUCTS[name])
    check(part.formatted)
    line = "-" * 40
    golden(f"matrix/{name}", "\n".join((CONSTRUCTS[name], line, part.formatted, line, part.text, "")))


SNIPPETS = st.sampled_from(
    [*CONSTRUCTS.values(), "```", "> ", "- ", "| ", "**", "[", "](", "$$", "\n\n", "<", "'", "\0"]
)
MARKDOWN = st.lists(st.one_of(SNIPPETS, st.text(max_size=60)), max_size=12).map("".join)


@given(MARKDOWN, st.sampled_from([1, 400]))
def test_any_text_becomes_allowed_messages_within_limits(text: str, times: int) -> None:
    parts = render((text + "\n\n") * times if len(text) < 200 else text)
    assert bool(parts) == bool(text.strip())
    for part in parts:
        check(part.formatted)
        assert len(json.dumps([part.text, part.formatted], ensure_ascii=False).encode()) < 61_000


@given(st.text(alphabet=">-*_ `[](){}!#1.|~\n\\<", max_size=300))
def test_any_signs_become_allowed_html(text: str) -> None:
    check(to_html(text))


def test_deep_nesting_stays_within_what_clients_show() -> None:
    check(to_html("> " * 500 + "deep\n\n" + "".join("  " * depth + "- a\n" for depth in range(200)) + "**" * 500 + "a"))


def test_code_of_many_messages_is_closed_and_opened_again() -> None:
    first, second, *_ = render("```python\n" + "print('ы')\n" * 5_000 + "```")
    assert first.formatted.startswith('<pre><code class="language-python">print')
    assert first.formatted.rstrip().endswith("</code></pre>")
    assert second.formatted.startswith('<pre><code class="language-python">print')


def test_nothing_is_lost_between_messages() -> None:
    words = [f"word{number}" for number in range(9_000)]
    parts = render(" ".join(words))
    assert " ".join(" ".join(part.text for part in parts).split()).split(" ") == words


def test_table_that_html_makes_too_long_stays_markdown() -> None:
    table = "|" + "a|" * 100 + "\n|" + "-|" * 100 + "\n" + "|\n" * 2_000
    (part,) = render(table)
    assert part.formatted == ""
    assert part.text == table
