"""Silent and delivered results."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.runs.run_state import NO_TEXT, silent_reason

SILENT = '{"silent": true, "reason": "ничего нового"}'


@pytest.mark.parametrize(
    "text",
    [
        SILENT,
        f"\n  {SILENT}\n",
        f"```json\n{SILENT}\n```",
        f"```\n{SILENT}\n```\n",
        f"```JSON \r\n  {SILENT}\r\n```",
        json.dumps({"reason": "ничего нового", "silent": True}, indent=2),
    ],
)
def test_nothing_but_the_object_is_silent(text):
    assert silent_reason(text) == "ничего нового"


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_an_empty_text_is_silent(text):
    assert silent_reason(text) == NO_TEXT


@pytest.mark.parametrize("more", ["", ', "reason": null', ', "reason": " "'])
def test_a_reason_may_be_missing(more):
    assert silent_reason(f'{{"silent": true{more}}}') == "no reason given"


def test_a_long_reason_is_cut():
    assert len(silent_reason(json.dumps({"silent": True, "reason": "x" * 3000}))) == 500


@pytest.mark.parametrize(
    "text",
    [
        f"To be silent one answers {SILENT}",
        f"{SILENT}\nbut there is news",
        f"News!\n```json\n{SILENT}\n```",
        f"```json\n{SILENT}\n```\n```json\n{SILENT}\n```",
        f"```python\n{SILENT}\n```",
        '{"silent": "true"}',
        '{"silent": 1}',
        '{"silent": false, "reason": "x"}',
        '{"silent": false, "silent": true}',
        '{"Silent": true}',
        '{"silent": true, "reason": 5}',
        '{"silent": true, "reason": "x", "message": "Call your mother"}',
        '[{"silent": true}]',
        "{'silent': True}",
        '{"silent": true',
        "true",
        "[" * 3000,
        json.dumps({"silent": True, "reason": "x" * 5000}),
        "Silent night",
    ],
)
def test_all_else_is_delivered(text):
    assert silent_reason(text) is None


@given(st.text())
def test_any_text_is_delivered_whole_or_is_empty(text):
    assert silent_reason(text) == (None if text.strip() else NO_TEXT)
