"""What is said aloud of an answer in Markdown."""

import pytest

from klaw.domain.spoken import spoken

MOST = 4_000


@pytest.mark.parametrize(
    ("markdown", "said"),
    [
        ("The capital of **France** is _Paris_.", "The capital of France is Paris."),
        ("# Столица\n\nПариж — столица *Франции*", "Столица. Париж — столица Франции."),
        ("- one\n- two\n  - three!\n", "one. two. three!"),
        ("Call `len(x)` first.", "Call len(x) first."),
        ("So:\n\n```python\nprint(1)\n```\n\nDone.", "So: Here is code in python. Done."),
        ("Так:\n\n```\nprint(1)\n```\n", "Так: Здесь код."),
        ("Вот:\n\n```bash\nls\n```", "Вот: Здесь код на bash."),
        ("    indented", "Here is code."),
        (
            "See [the page](https://example.org/a?b) or https://www.example.com/long/path?x=1.",
            "See the page or example.com",
        ),
        ("![a red house](x.png) stands there", "a red house stands there."),
        ("Paris [1], Lyon[2].", "Paris, Lyon."),
        ("a<br>b <b>bold</b>\n\n<script>alert(1)</script>", "ab bold."),
        ("| city | people |\n|---|---|\n| Rome | 3 |\n| Oslo | 1 |", "city, people. Rome, 3. Oslo, 1."),
        ("one\ntwo  \nthree", "one two three."),
        ("~~no~~ yes", "no yes."),
        ("", ""),
        ("***", ""),
    ],
)
def test_only_words_are_said(markdown: str, said: str) -> None:
    assert spoken(markdown, MOST).removesuffix(".") == said.removesuffix(".")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One sentence. Another one. A third", "One sentence. Another one."),
        ("Правда? Да! А это не вошло уже", "Правда? Да!"),
        ("no end of a sentence here at all and on", "no end of a sentence here at"),
        ("x" * 100, "x" * 30),
    ],
)
def test_a_long_text_ends_with_a_sentence(text: str, said: str) -> None:
    assert spoken(text, 30) == said


def test_a_megabyte_is_no_trouble() -> None:
    assert len(spoken("слово " * 200_000, MOST)) <= MOST
