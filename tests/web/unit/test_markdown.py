"""Markdown as HTML: formulas, footnotes, task lists, links; and nothing that runs or is loaded."""

import re

import pytest

from klaw.web.markdown import growing, to_html
from tests.support.attacks import ATTACKS

MOST = 1_000_000


def html(text):
    return to_html(text, MOST)


@pytest.mark.parametrize("text", ["$x^2$", r"\(x^2\)", "a $x^2$, b", "| $x^2$ |\n|---|"])
def test_a_formula_in_a_line_is_mathml(text):
    assert '<math display="inline"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math>' in html(text)


@pytest.mark.parametrize("text", ["$$x$$", r"\[x\]", "$$\nx\n$$", "\\[\nx\n\\]", "- a\n\n  $$\n  x\n  $$"])
def test_a_formula_by_itself_is_mathml(text):
    assert '<math display="block"><mrow><mi>x</mi></mrow></math>' in html(text)


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $10.",
        "from $5 to 10$ or more",
        "US$5, A$6",
        "$HOME/$USER",
        "$5-$10",
        r"\$5 and \$6",
        "`$x$`",
        "```\n$x$ \\(y\\)\n```",
        "    $$x$$",
        "$ x $",
        r"\(\)",
    ],
)
def test_money_and_code_are_no_formulas(text):
    assert "<math" not in html(text)


def test_backslashes_and_underscores_of_a_formula_survive():
    made = html(r"\(\frac{a_1}{b_2}\) *and* \[\begin{pmatrix} a & b \\ c & d \end{pmatrix}\]")
    assert "<mfrac>" in made
    assert "<em>and</em>" in made
    assert made.count("<mtr>") == 2


@pytest.mark.parametrize("text", [r"$\frac{a}$", r"$\nosuchcommand{x}$", r"$$\begin{matrix} a$$", "$x^2^3$"])
def test_wrong_latex_shows_its_source(text):
    made = html(text)
    assert "<math" not in made
    assert f'<code class="latex">{text}</code>' in made.replace("&amp;", "&")


def test_task_lists_tables_footnotes_and_strikethrough():
    made = html(
        "- [x] dug\n- [ ] sown\n\n| a | b | c |\n|:--|--:|:-:|\n| 1 | 2 | 3 |\n\n"
        "~~no~~ yes[^1][^why]\n\n[^1]: one\n[^why]: two"
    )
    assert '<li class="task">☑ dug</li>' in made
    assert '<li class="task">☐ sown</li>' in made
    assert '<td class="right">2</td>' in made
    assert '<td class="center">3</td>' in made
    assert "<s>no</s> yes<sup>1</sup><sup>why</sup>" in made
    assert '<p class="footnote" dir="auto"><sup>1</sup> one</p>' in made
    assert "<sup>why</sup> two</p>" in made
    assert "[^a-z]" in html("the class [^a-z] of letters")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("see https://a.example/b_c_d.", "https://a.example/b_c_d"),
        ("(https://a.example/x_(y))", "https://a.example/x_(y)"),
        ("**https://a.example/**", "https://a.example/"),
    ],
)
def test_a_bare_link_is_a_link(text, address):
    assert re.findall('href="([^"]*)"', html(text)) == [address]
    assert f">{address}</a>" in html(text)


def test_a_link_is_not_made_twice():
    assert html("[https://a.example](https://b.example) `https://c.example`").count("<a ") == 1


def test_code_says_its_language():
    assert '<div class="block" data-language="python"><pre class="code">' in html("```python\nx = 1\n```")
    assert 'data-language="&quot;x"' in html('```"x\ny\n```')


def test_each_block_has_its_own_direction():
    assert html("שלום\n\nhello\n\n- a\n\n> b").count('dir="auto"') == 4


@pytest.mark.parametrize("text", ATTACKS)
def test_no_text_becomes_more_than_it_may(text):
    for made in (html(text), growing(text, MOST, ended=False)[2], growing(f"{text}\n\nend\n", MOST, ended=False)[1]):
        tags = re.findall(r"<([a-z0-9-]+)((?:[^>\"]|\"[^\"]*\")*)>", made)
        for tag, attributes in tags:
            assert tag not in {
                "script",
                "img",
                "iframe",
                "svg",
                "style",
                "link",
                "object",
                "form",
                "input",
                "annotation-xml",
            }
            assert not re.search(r"\s(on\w+|style|src|xlink:href|formaction)=", attributes), attributes
            assert not re.search(r"href=\"(?!https?:|mailto:)", attributes), attributes


def test_what_has_grown_is_what_the_whole_becomes():
    text = "# Head\n\npara **b**\n\n- a\n- b\n\n```py\nx = 1\n```\n\n$$\nx\n$$\n\nend\n"
    made, done = "", 0
    for end in range(len(text) + 1):
        whole, finished, _ = growing(text[done:end], MOST, ended=end == len(text))
        made += finished
        done += whole
    assert made == html(text)
