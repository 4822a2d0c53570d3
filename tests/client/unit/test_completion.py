"""Tab behind ``/model``."""

import pytest

from klaw.client.editor import EditorKey, LineEditor, completed

NAMES = ["local/small", "cloud/qwen3-8b", "cloud/qwen3-32b", "ollama/gemma"]


@pytest.mark.parametrize(
    ("begun", "name", "more"),
    [
        ("loc", "local/small", ""),
        ("cloud", "cloud/qwen3-", "cloud/qwen3-8b, cloud/qwen3-32b"),
        ("CLOUD/Q", "cloud/qwen3-", "cloud/qwen3-8b, cloud/qwen3-32b"),
        ("gemma", "ollama/gemma", ""),
        ("qwen3", "qwen3", "cloud/qwen3-8b, cloud/qwen3-32b"),
        ("", "", ", ".join(NAMES)),
        ("gpt", "gpt", "no model has this in its name"),
    ],
)
def test_a_name_grows_as_far_as_it_is_clear(begun, name, more):
    assert completed(begun, NAMES) == (name, more)


def test_no_more_than_a_line_of_names():
    _, more = completed("m", [f"m{number:02}" for number in range(30)])
    assert more.endswith("m11 … and 18 more")


def test_tab_is_a_space_elsewhere():
    editor = LineEditor()
    assert list(editor.feed(b"a\tb\r")) == ["a b"]
    assert list(editor.feed(b"/model lo\t")) == [EditorKey.COMPLETE]
    editor.put("/model local/small")
    assert list(editor.feed(b"\r")) == ["/model local/small"]
