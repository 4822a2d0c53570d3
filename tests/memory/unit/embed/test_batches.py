"""Windows and batches: nothing is lost, nothing is larger than allowed."""

from hypothesis import given
from hypothesis import strategies as st

from klaw.memory.embed.model import Window, cut_windows, plan_batches

LENGTHS = st.lists(st.integers(0, 700), max_size=40)


@given(LENGTHS, st.integers(0, 40), st.integers(2, 510))
def test_windows_hold_every_token_once_and_in_order(lengths: list[int], head: int, size: int) -> None:
    contents = [(list(range(head)), list(range(length))) for length in lengths]
    windows = cut_windows(contents, size)
    for text, (before, ids) in enumerate(contents):
        mine = [window for window in windows if window.text == text]
        assert [each for window in mine for each in window.ids] == ids
        assert mine, "a text without tokens still gets a window"
        assert all(window.width <= size for window in mine)
        assert all(list(window.head) == before[head - len(window.head) :] for window in mine)


@given(LENGTHS, st.integers(1, 2048))
def test_batches_hold_every_window_once_within_the_limit(lengths: list[int], max_tokens: int) -> None:
    windows = [Window(at, list(range(length))) for at, length in enumerate(lengths)]
    batches = list(plan_batches(windows, max_tokens, 2))
    assert sorted(window.text for batch in batches for window in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(len(window.ids) + 2 for window in batch)
        assert len(batch) == 1 or padded <= max_tokens


def test_the_longest_come_first() -> None:
    windows = [Window(at, [0] * length) for at, length in enumerate([3, 500, 10])]
    assert [window.text for batch in plan_batches(windows, 16, 2) for window in batch] == [1, 2, 0]


def test_the_weight_of_an_empty_window_is_one() -> None:
    assert [window.weight for window in cut_windows([([], []), ([], [7, 8])], 510)] == [1, 2]
