"""Calls as models write them, made fit to be stored and sent back."""

import itertools
import json

import pytest

from klaw.llm.types import ToolCall
from klaw.toolbox.executor import SHOWN_CHARS, PreparedCall, in_short, parse_arguments, prepare


def prepared(*calls: ToolCall, taken: frozenset[str] = frozenset(), most: int = 32) -> tuple[PreparedCall, ...]:
    ids = (f"new{number}" for number in itertools.count(1))
    return prepare(calls, taken=taken, new_id=lambda: next(ids), most=most)


def call(id: str = "c1", name: str = "add", arguments: str = "{}") -> ToolCall:  # noqa: A002 - the field's name
    return ToolCall(id=id, name=name, arguments=arguments)


def test_a_good_call_stays_as_it_is() -> None:
    (only,) = prepared(call(arguments='{"текст": "да"}'))
    assert only.call == call(arguments='{"текст": "да"}')
    assert (only.arguments, only.problem) == ({"текст": "да"}, None)


def test_two_calls_with_one_id() -> None:
    first, second = prepared(call(), call(arguments='{"a": 1}'))
    assert (first.call.id, first.problem) == ("c1", None)
    doubled = "Two calls of this round have the same id; only the first was carried out. Call it again alone."
    assert (second.call.id, second.problem) == ("new1", doubled)


def test_ids_of_earlier_rounds_and_odd_ids_and_names_are_replaced() -> None:
    again, odd, empty = prepared(
        call(), call(id="functions.x:0"), call(id="", name="a.b/в" + "x" * 100), taken=frozenset({"c1"})
    )
    assert [each.call.id for each in (again, odd, empty)] == ["new1", "new2", "new3"]
    assert all(each.problem is None for each in (again, odd, empty))
    assert empty.call.name == ("a_b__" + "x" * 100)[:64]


def test_calls_beyond_the_limit_are_told_to_come_again() -> None:
    many = prepared(*[call(id=f"c{n}") for n in range(4)], most=2)
    assert [each.problem is None for each in many] == [True, True, False, False]
    assert "only 2" in str(many[2].problem)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a: 1}", "not JSON"),
        ('{"a": 1', "not JSON"),
        ('{"a": NaN}', "NaN"),
        ('{"a": Infinity}', "too large"),
        ('{"a": 1e999}', "too large"),
        ("[1]", "one JSON object"),
        ("5", "one JSON object"),
        ('"text"', "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("9" * 5000, "too large"),
    ],
)
def test_broken_arguments_are_described_and_sent_back_as_an_empty_object(text: str, words: str) -> None:
    (only,) = prepared(call(arguments=text))
    assert words in str(only.problem)
    assert json.loads(only.call.arguments) == {}


@pytest.mark.parametrize("text", ["", "  ", "null", "{}", '"{}"'])
def test_nothing_is_an_empty_object(text: str) -> None:
    assert parse_arguments(text) == ({}, None)


def test_an_object_that_was_encoded_twice_is_read() -> None:
    assert parse_arguments(json.dumps('{"a": 1}')) == ({"a": 1}, None)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, ""),
        ({"command": "ls -la\n  /tmp"}, "ls -la /tmp"),
        ({"path": "сад.md", "text": "Код 4711"}, "path: сад.md, text: Код 4711"),
        ({"query": "a\x1b[2J\u202eb"}, "a\\x1b[2J\\u202eb"),
        ({"names": ["x", 1], "deep": {"y": None}}, 'names: ["x", 1], deep: {"y": null}'),
    ],
)
def test_arguments_are_shown_in_one_printable_line(arguments: dict[str, object], shown: str) -> None:
    assert in_short(arguments) == shown


def test_long_arguments_are_cut() -> None:
    long = in_short({f"n{number}": "я" * 100_000 for number in range(1000)})
    assert len(long) == SHOWN_CHARS
    assert long.endswith("…")
