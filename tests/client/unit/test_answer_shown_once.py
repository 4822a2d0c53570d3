"""An answer is shown once, though it comes in pieces and then whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.client.ask import ShownAnswer


@given(st.text(min_size=1), st.data())
def test_pieces_and_rest_show_the_answer_exactly_once(content: str, data: st.DataObject) -> None:
    """Whatever pieces are lost or repeated, what is shown is the whole answer."""
    answer = ShownAnswer("t")
    shown = ""
    at = 0
    while at < len(content):
        end = data.draw(st.integers(at + 1, len(content)))
        fate = data.draw(st.sampled_from(["comes", "lost", "twice", "from the beginning"]))
        if fate in ("comes", "twice"):
            shown += answer.piece(at, content[at:end])
        if fate == "twice":
            shown += answer.piece(at, content[at:end])
        if fate == "from the beginning":
            shown += answer.piece(0, content[:end])
        at = end
    rest = answer.rest(content)
    assert rest is not None
    shown += rest
    assert shown == content or shown.strip() == content.strip()


@pytest.mark.parametrize(
    ("pieces", "content", "shown"),
    [
        ([(0, "Hello"), (5, " world")], "Hello world", ["Hello", " world", ""]),
        ([(0, "Hello")], "Hello world", ["Hello", " world"]),
        ([(0, "Привет"), (9, "!!")], "Привет, мир!", ["Привет", "", ", мир!"]),
        ([(0, "Try one"), (0, "Second")], "Second try", ["Try one", "", None]),
        ([(0, "Try one"), (0, "Second"), (6, " try")], "Second try", ["Try one", "", "", None]),
        ([(0, " Yes")], "Yes.", [" Yes", "."]),
        ([(0, "Yes. \n")], "Yes.", ["Yes. \n", ""]),
        ([], "All at once", ["All at once"]),
        ([(3, "late")], "so late", ["", "so late"]),
    ],
)
def test_what_is_shown_of_each(pieces: list[tuple[int, str]], content: str, shown: list[str | None]) -> None:
    answer = ShownAnswer("t")
    assert [answer.piece(*piece) for piece in pieces] + [answer.rest(content)] == shown
