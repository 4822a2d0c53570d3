"""Markdown in pieces: nothing lost, nothing torn, headings kept."""

import random
import re

import pytest

from klaw.domain import tokens
from klaw.memory.facts.memory_files import MAX_CHUNKS, MAX_TITLE, TARGET_TOKENS, chunks_of

MEMORY = """\ufeff---
tags: [home]
---
# Дом

Код от калитки — 4815.

## Сад
- яблоня
- груша

  высажена в 2020
- слива
1. полить
2. убрать

```sh
# это не заголовок

echo "- и не список"
```

Семья
-----
Сестра Аня, мама Ольга.

## Empty one
## Next ##
text after
"""


def test_pieces_stand_under_their_headings() -> None:
    found = chunks_of(MEMORY)
    assert [(each.line, each.heading) for each in found] == [
        (1, ""),
        (6, "Дом"),
        (9, "Дом > Сад"),
        (25, "Дом > Семья"),
        (27, "Дом > Empty one"),
        (29, "Дом > Next"),
    ]
    garden = found[2].text
    assert "- груша\n\n  высажена в 2020\n- слива\n1. полить" in garden
    assert '```sh\n# это не заголовок\n\necho "- и не список"\n```' in garden
    assert found[4].text == "Empty one"


@pytest.mark.parametrize("text", ["", "\n \n\t\n", "\ufeff"])
def test_nothing_gives_no_piece(text: str) -> None:
    assert chunks_of(text) == []


def test_a_long_list_is_cut_between_its_items() -> None:
    items = [f"- item {n} " + "слово " * 20 + f"\n  more of {n}" for n in range(60)]
    found = chunks_of("# List\n\n" + "\n".join(items))
    assert len(found) > 5
    assert all(each.text.startswith("- item") and each.heading == "List" for each in found)
    assert "\n".join(each.text for each in found).count("more of") == 60
    assert all(tokens.estimate(each.text) <= TARGET_TOKENS for each in found)


def test_a_long_fence_is_closed_and_opened_again() -> None:
    code = "\n".join(f"print({n})  # a line of code" for n in range(300))
    found = chunks_of(f"````python\n{code}\n```\n````\nafter")
    fences = [each.text for each in found if each.text.startswith("````")]
    assert len(fences) > 3
    assert all(each.split("\n\nafter")[0].endswith("\n````") and each.startswith("````python\n") for each in fences)


def test_empty_lines_of_a_fence_are_cut_too() -> None:
    found = chunks_of("```\na\n" + "\n" * 20_000 + "b\n```")
    assert all(tokens.estimate(each.text) <= TARGET_TOKENS + 3 for each in found)
    assert "a" in found[0].text
    assert "b" in found[-1].text


def test_an_unclosed_fence_and_deep_headings_end() -> None:
    assert "x" in chunks_of("```\nx\n# no heading")[0].text
    deep = chunks_of("\n".join(f"{'#' * (n % 6 + 1)} {'h' * 200}" for n in range(12)) + "\ntext")
    assert all(len(each.heading) <= 6 * (MAX_TITLE + 3) for each in deep)


def test_one_endless_line_is_cut_at_words() -> None:
    found = chunks_of("слово " * 5_000)
    assert all(tokens.estimate(each.text) <= TARGET_TOKENS + 1 for each in found)
    assert sum(each.text.count("слово") for each in found) == 5_000
    assert sum(len(each.text) for each in chunks_of("x" * 50_000)) == 50_000


def test_a_huge_file_is_bounded() -> None:
    assert len(chunks_of("# a\nb\n" * 10_000)) == MAX_CHUNKS


def test_whatever_a_file_holds_every_word_is_in_a_piece_in_order() -> None:
    chance = random.Random(7)
    starts = ["", "# ", "### ", "- ", "  - ", "1. ", "```\n", "~~~", "> ", "| a | ", "===\n", "---\n", "    ", "\t"]
    for _ in range(300):
        words = iter(f"w{n}" for n in range(10_000))
        lines = []
        for _ in range(chance.randrange(60)):
            line = chance.choice(starts) + " ".join(next(words) for _ in range(chance.choice([0, 1, 5, 80])))
            lines.append(line + chance.choice(["", "", "\n"]))
        text = "\n".join(lines)
        found = chunks_of(text, target=chance.choice([20, 100, 400]))
        said = " ".join(f"{each.heading} {each.text}" for each in found)
        assert set(re.findall(r"w\d+", text)) <= set(re.findall(r"w\d+", said))
        # The opening line of a fence that was cut is there again.
        numbers = list(dict.fromkeys(int(n) for each in found for n in re.findall(r"w(\d+)", each.text)))
        assert numbers == sorted(numbers)
        assert all(1 <= each.line <= text.count("\n") + 1 for each in found)
