"""Rows end between words, and text that comes in pieces is broken as the whole is."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from klaw.domain.text_width import width, wrap

TEXTS = st.text(st.sampled_from("ab ,.(я日本。「」🙂👩\u200d🇷\u0301\ufe0f"), max_size=40)


@pytest.mark.parametrize(
    ("line", "columns", "rows"),
    [
        ("The garden gate is open.", 10, ["The garden", "gate is", "open."]),
        ("Садовая калитка открыта.", 10, ["Садовая", "калитка", "открыта."]),
        ("    indented code stays", 12, ["    indented", "code stays"]),
        ("see https://example.org/a/b", 12, ["see", "https://exam", "ple.org/a/b"]),
        ("花园的门开着。", 12, ["花园的门开", "着。"]),
        ("彼は「はい」と言った", 8, ["彼は「は", "い」と", "言った"]),
        ("yes 👩\u200d👩\u200d👧 ok", 8, ["yes", "👩\u200d👩\u200d👧 ", "ok"]),
        ("á。。👩 \ufe0f👩。", 12, ["á。。👩 \ufe0f👩。"]),  # no emoji of a space
        ("", 5, [""]),
        ("word ", 4, ["word "]),
    ],
)
def test_rows(line: str, columns: int, rows: list[str]) -> None:
    assert [row.rstrip() for row in wrap(line, columns)] == [row.rstrip() for row in rows]


@given(TEXTS, st.integers(2, 12))
def test_every_row_fits_and_nothing_but_spaces_is_lost(line: str, columns: int) -> None:
    rows = wrap(line, columns)
    assert "".join(rows).replace(" ", "") == line.replace(" ", "")
    for row in rows:
        assert width(row.rstrip(" ")) <= columns or len(row.rstrip(" ")) <= 8, "one sign alone may be wider"


@given(st.lists(TEXTS, max_size=6), st.integers(8, 24))
def test_pieces_are_broken_like_the_whole(pieces: list[str], columns: int) -> None:
    assume(not re.search(rf"[^ 日本🙂👩🇷]{{{max(columns // 4, 1)},}}", "".join(pieces)))  # no word that has to be cut
    rows = [""]
    for piece in pieces:
        *more, last = wrap(rows[-1] + piece, columns)
        rows = [*rows[:-1], *more, last]
    whole = wrap("".join(pieces), columns)
    assert [row.rstrip() for row in rows] == [row.rstrip() for row in whole]


def test_a_long_text_takes_time_by_its_length() -> None:
    """64,000 characters without a space."""
    assert len(wrap("x" * 64_000, 80)) == 64_000 // 80
    assert len(wrap("日" * 64_000, 80)) == 64_000 // 40
    assert len(wrap("." * 64_000, 80)) == 64_000 // 80
