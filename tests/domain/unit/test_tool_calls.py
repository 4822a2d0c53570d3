"""Calls of tools in words."""

import json

import pytest

from klaw.domain.tool_calls import MAX_ABOUT, MAX_READ, in_words


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("memory_search", '{"query": "garden code", "limit": 3}', ("Searched memory", "garden code")),
        ("memory_search", '{"query": 3}', ("Searched memory", None)),
        ("memory_search", "{", ("Searched memory", None)),
        ("memory_search", "[" * 100_000, ("Searched memory", None)),
        ("current_time", "{}", ("Looked at the clock", None)),
        ("server__tool", '{"count": 2, "text": " a\\n b\\u202e "}', (None, "a b")),
        ("server__tool", "[1]", (None, None)),
    ],
)
def test_a_call_says_what_was_done(name, arguments, words):
    assert in_words(name, arguments) == words


def test_long_arguments_are_shortened_or_left_out():
    _, about = in_words("memory_save", json.dumps({"text": "я" * 1_000}))
    assert about == "я" * (MAX_ABOUT - 1) + "…"
    assert in_words("file_write", json.dumps({"path": "a.md", "content": "x" * MAX_READ})) == ("Wrote a file", None)
