"""The splitter gives the same thinking and text however the answer is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.llm.providers.thinking import ThinkSplitter
from klaw.llm.types import ReasoningDelta, TakenBack, TextDelta


def split(pieces: list[str], *, holds: bool = False) -> tuple[str, str]:
    """Thinking and text, the latter as somebody sees it who obeys ``TakenBack``."""
    splitter = ThinkSplitter(holds=holds)
    deltas = [delta for piece in pieces for delta in splitter.feed(piece)] + list(splitter.end())
    assert all(delta.text for delta in deltas)
    thought, text = "", ""
    for delta in deltas:
        match delta:
            case ReasoningDelta(more):
                thought += more
            case TakenBack(all_of_it):
                assert text == all_of_it
                assert not holds
                thought, text = thought + text, ""
            case TextDelta(more):
                text += more
    return thought, text


@pytest.mark.parametrize("holds", [False, True])
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
        # 26.C1: thinking in other forms
        ("<thought>Add.</thought>\nFour.", "Add.", "Four."),
        ("<thinking>Add.</thinking>\nFour.", "Add.", "Four."),
        ("<seed:think>Add.</seed:think>Four.", "Add.", "Four."),
        ("◁think▷Add.◁/think▷Four.", "Add.", "Four."),
        ("[THINK]Add.[/THINK]Four.", "Add.", "Four."),
        ("<|START_THINKING|>Add.<|END_THINKING|>Four.", "Add.", "Four."),
        ("<think>a</think>\n<think>b</think>\nFour.", "ab", "Four."),
        ("<|channel|>analysis<|message|>Add.<|end|><|start|>assistant<|channel|>final<|message|>Four.",
         "Add.", "Four."),
        ("<|channel|>final<|message|>Four.<|return|>", "", "Four."),
        ("<|channel|>analysis<|message|>a<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}<|call|>",
         "a{}", ""),
        ("<|start|>assistant<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b<|end|>",
         "a", "b"),
        ("<|channel|> is a tag", "", "<|channel|> is a tag"),
        # 26.C1: nothing opened it
        ("Add them.\n</think>\n\nFour.", "Add them.\n", "Four."),
        ("Add them.</think>Four.", "Add them.", "Four."),
        ("Прибавлю.\n</thought>Четыре.", "Прибавлю.\n", "Четыре."),
        ("</think>\n\nFour.", "", "Four."),
        ("Four.\n</think>", "", "Four.\n"),
        ("Write `</think>` at its end.", "", "Write `</think>` at its end."),
        ("Its end is </think> in a text.", "", "Its end is </think> in a text."),
        ("```\na\n</think>\n```\nis the end.", "", "```\na\n</think>\n```\nis the end."),
        ("It begins with <think>,\n</think>\nends it.", "", "It begins with <think>,\n</think>\nends it."),
    ],
)  # fmt: skip
def test_whole_and_letter_by_letter(answer: str, thought: str, text: str, holds: bool) -> None:
    """Whole, and cut at every letter, the result is the same, whether it is held back or taken back."""
    assert split([answer], holds=holds) == (thought, text)
    assert split(list(answer), holds=holds) == (thought, text)


@pytest.mark.parametrize(
    ("answer", "thought", "text"),
    [
        ("<think>Раз < два.\n</think>\n\nЧетыре.", "Раз < два.\n", "Четыре."),
        ("Раз.\n</think>\n\nДва.", "Раз.\n", "Два."),
    ],
)
def test_cut_at_every_two_places(answer: str, thought: str, text: str) -> None:
    for first in range(len(answer) + 1):
        for second in range(first, len(answer) + 1):
            pieces = [answer[:first], answer[first:second], answer[second:]]
            assert split(pieces) == split(pieces, holds=True) == (thought, text), pieces


def test_what_stands_before_a_call_need_not_be_an_answer() -> None:
    """A model that only calls a tool says nothing behind its thinking."""
    for calls, found in ((True, ("Look it up.\n", "")), (False, ("", "Look it up.\n"))):
        splitter = ThinkSplitter()
        deltas = list(splitter.feed("Look it up.\n</think>\n\n"))
        splitter.calls = calls
        deltas += splitter.end()
        taken = [delta for delta in deltas if not isinstance(delta, TextDelta)]
        said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        assert ("".join(delta.text for delta in taken), "" if taken else said) == found


def test_thinking_that_is_seen_as_such_is_not_said_first() -> None:
    """26.C1: nothing is taken back that need not be said."""
    assert list(ThinkSplitter().feed("Add them.\n</think>\n\nFour.")) == [
        ReasoningDelta("Add them.\n"),
        TextDelta("Four."),
    ]


@given(
    st.lists(
        st.sampled_from(
            ["<think>", "</think>", "<", "/", "think", ">", " ", "\n", "да", "ok", ".", "`", "</thought>", "<|end|>",
             "<|channel|>", "analysis", "final", "<|message|>", "<|start|>assistant"]
        ),
        max_size=12,
    ),
    st.booleans(),
)  # fmt: skip
def test_cutting_never_matters(parts: list[str], holds: bool) -> None:
    """Any cutting of any answer gives what the uncut answer gives."""
    whole = split(["".join(parts)], holds=holds)
    assert split(parts, holds=holds) == whole == split(list("".join(parts)), holds=holds)
