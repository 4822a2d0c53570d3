"""The splitter gives the same thinking and text however the answer is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.llm.providers.openai import ThinkSplitter
from klaw.llm.types import ReasoningDelta, TextDelta


def split(pieces: list[str]) -> tuple[str, str]:
    splitter = ThinkSplitter()
    deltas = [delta for piece in pieces for delta in splitter.feed(piece)] + list(splitter.end())
    assert all(delta.text for delta in deltas)
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return thought, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.parametrize(
    ("answer", "thought", "text"),
    [
        ("<think>почему?</think>\n\nПотому что.", "почему?", "Потому что."),
        ("  \n<think>a</think>b", "a", "b"),
        ("<think></think>b", "", "b"),
        ("<think>a < b </ c</think>d", "a < b </ c", "d"),
        ("<think>never closed", "never closed", ""),
        ("<think>cut in the tag</thi", "cut in the tag</thi", ""),
        ("no <think>tags</think> here", "", "no <think>tags</think> here"),
        ("<thin air", "", "<thin air"),
        ("<thi", "", "<thi"),
        ("  indented", "", "  indented"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("", "", ""),
    ],
)
def test_whole_and_letter_by_letter(answer: str, thought: str, text: str) -> None:
    """Whole, and cut at every letter, the result is the same."""
    assert split([answer]) == (thought, text)
    assert split(list(answer)) == (thought, text)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "/", "think", ">", " ", "\n", "да", "ok"]), max_size=12))
def test_cutting_never_matters(parts: list[str]) -> None:
    """Any cutting of any answer gives what the uncut answer gives."""
    assert split(parts) == split(["".join(parts)]) == split(list("".join(parts)))
