"""What comes out of a reply that should have the form of the schema, whatever it is and however it is cut."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klaw.errors import ProviderMalformed
from klaw.llm.replying import MAX_HELD, ReplyReader
from klaw.llm.types import ToolDescription
from klaw.toolbox.calls import parse_arguments

SEARCH = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["q"],
    "additionalProperties": False,
}
TOOLS = (
    ToolDescription(name="search", description="Find.", parameters=SEARCH),
    ToolDescription(name="now", description="Tell the time.", parameters={"type": "object", "properties": {}}),
)
CALLS = '{"reply":{"calls":[{"name":"search","arguments":{"q":"кот"}},{"name":"now"}]}}'
FOUND = [("search", '{"q": "кот"}'), ("now", "{}")]


def read(*pieces: str):
    """What the pieces make: the texts as given, and the calls or None if they are malformed."""
    numbers = itertools.count()
    reader = ReplyReader(TOOLS)
    given = [text for piece in pieces for text in reader.feed(piece)]
    given += reader.end()
    assert all(given), "an empty text was given"
    assert "".join(given) == reader.text
    try:
        calls = reader.calls(lambda: f"id{next(numbers)}")
    except ProviderMalformed:
        return reader.text, None
    assert len({call.id for call in calls}) == len(calls)
    return reader.text, [(call.name, call.arguments) for call in calls]


CASES = {
    "answer": ('{"reply":{"answer":"Кот спит."}}', "Кот спит.", []),
    "spread out": ('\n{ "reply" :\n { "answer" : "Hi" } }\n', "Hi", []),
    "without the member around": ('{"answer":"Hi"}', "Hi", []),
    "a text in it": ('{"reply":"Hi"}', "Hi", []),
    "no text in it": ('{"reply":{"answer":42}}', "42", []),
    "escapes": (r'{"reply":{"answer":"\"a\"\n\\ \/ \u043a\u043E\u0442 \ud83d\ude00!"}}', '"a"\n\\ / кот 😀!', []),
    "broken escapes": (r'{"reply":{"answer":"\d \ud83d \udc00 \uZZZZ \u0000"}}', "d � � �ZZZZ �", []),
    "a line break in it": ('{"reply":{"answer":"a\nb"}}', "a\nb", []),
    "cut off answer": ('{"reply":{"answer":"Кот сп', "Кот сп", []),
    "cut off in an escape": ('{"reply":{"answer":"Кот\\u04', "Кот", []),
    "cut off before the answer": ('{"reply":{"ans', "", None),
    "an empty answer that was cut off": ('{"reply":{"answer":"', "", None),
    "calls": (CALLS, "", FOUND),
    "calls without the member around": ('{"calls":[{"name":"now","arguments":{}}]}', "", [("now", "{}")]),
    "one call": ('{"reply":{"calls":{"name":"now","arguments":{}}}}', "", [("now", "{}")]),
    "the call alone": ('{"name":"search","arguments":{"q":"x"}}', "", [("search", '{"q": "x"}')]),
    "an object that only looks like one": ('{"name":"Барсик","arguments":1}', '{"name":"Барсик","arguments":1}', []),
    "answer and calls": ('{"reply":{"answer":"Ищу.","calls":[{"name":"now"}]}}', "Ищу.", [("now", "{}")]),
    "calls and answer": ('{"reply":{"calls":[{"name":"now"}],"answer":"Ищу."}}', "Ищу.", [("now", "{}")]),
    "null for what is optional": (
        '{"reply":{"calls":[{"name":"search","arguments":{"q":"x","limit":null}}]}}',
        "",
        [("search", '{"q": "x"}')],
    ),
    "arguments as a text": (
        '{"reply":{"calls":[{"name":"search","arguments":"{\\"q\\":\\"x\\"}"}]}}',
        "",
        [("search", '{"q":"x"}')],
    ),
    "code fence": (f"```json\n{CALLS}\n```", "", FOUND),
    "a word before": (f"Сейчас посмотрю.\n{CALLS}", "Сейчас посмотрю.", FOUND),
    "a word before a code fence": (f"Let me look.\n\n```json\n{CALLS}\n```\nDone.", "Let me look.", FOUND),
    "not at the beginning of a line": (f"Write {CALLS}", f"Write {CALLS}", []),
    "text": ("Просто ответ.\nИ ещё.\n", "Просто ответ.\nИ ещё.", []),
    "text with code": ("See:\n```python\nx = {1}\n```\nok", "See:\n```python\nx = {1}\n```\nok", []),
    "other JSON": ('{"name": "Барсик"}', '{"name": "Барсик"}', []),
    "other JSON in a fence": ('```json\n{"a": 1}\n```', '```json\n{"a": 1}\n```', []),
    "braces that are no JSON": ("{curly} words", "{curly} words", []),
    "cut off in the second call": (
        '{"reply":{"calls":[{"name":"now","arguments":{}},{"name":"search","arguments":{"q":"ко',
        "",
        [("now", "{}"), ("search", '{"q":"ко')],
    ),
    "cut off before the arguments": ('{"reply":{"calls":[{"name":"search","argu', "", [("search", "{")]),
    "cut off in the name": ('{"reply":{"calls":[{"name":"sea', "", None),
    "no JSON in the arguments": (
        """{"calls":[{"name":"search","arguments":{'q': 1}}]}""",
        "",
        [("search", "{'q': 1}}]}")],
    ),
    "no calls": ('{"reply":{"calls":[]}}', "", []),
    "a call without a name": ('{"reply":{"calls":[{"arguments":{}}]}}', "", None),
    "a name that is none": ('{"reply":{"calls":[{"name":["now"]}]}}', "", None),
    "nonsense in our form": ('{"reply": 5 5}', "", None),
    "only white space": (" \n ", "", []),
    "deep": ('{"reply":{"calls":' + "[" * 100_000, "", None),
}


@pytest.mark.parametrize(("reply", "text", "calls"), CASES.values(), ids=CASES.keys())
def test_what_is_read(reply: str, text: str, calls: list[tuple[str, str]] | None) -> None:
    assert read(reply) == (text, calls)


@pytest.mark.parametrize("reply", [case[0] for case in CASES.values() if len(case[0]) < 1000])
def test_a_character_at_a_time(reply: str) -> None:
    assert read(*reply) == read(reply)


def test_a_call_that_was_cut_off_is_not_carried_out() -> None:
    """The executor tells the model that its arguments are no JSON."""
    for reply, _, calls in CASES.values():
        if calls and not reply.rstrip("`\n Done.").endswith("}"):
            assert parse_arguments(calls[-1][1])[1] is not None


def test_the_answer_is_given_while_it_comes() -> None:
    reader = ReplyReader(TOOLS)
    assert list(reader.feed('{"reply":{"ans')) == []
    assert list(reader.feed('wer":"Кот')) == ["Кот"]
    assert list(reader.feed(" сп\\")) == [" сп"]
    assert list(reader.feed("n")) == ["\n"]
    assert list(reader.feed('ит."}}')) == ["ит."]
    assert list(reader.end()) == []


def test_text_is_given_while_it_comes() -> None:
    reader = ReplyReader(TOOLS)
    assert list(reader.feed("При")) == ["При"]
    assert list(reader.feed("вет.\n")) == ["вет."]
    assert list(reader.feed("И")) == ["\n", "И"]


def test_nothing_of_calls_is_given() -> None:
    reader = ReplyReader(TOOLS)
    assert [*(text for character in CALLS for text in reader.feed(character)), *reader.end()] == []


def test_too_many_calls() -> None:
    assert read(json.dumps({"reply": {"calls": [{"name": "now"}] * 129}})) == ("", None)


PARTS = st.sampled_from(
    [
        *(
            '{"reply":',
            '{"answer":',
            '"calls":[',
            '{"name":"now"',
            ',"arguments":',
            "{}",
            "}",
            "]",
            '"',
            ",",
            "\n",
            "```",
        ),
        *("json", " ", "кот", "\\", "\\u04", "3a", "\\ud83d", "\\ude00", "{", "[", "null", "1e999", "NaN", CALLS),
        '{"reply":{"answer":"',
        '{"reply":{"calls":[{"name":"search","arguments":{"q":"',
        " " * MAX_HELD,
        "\n" * (MAX_HELD + 3),
    ]
)
REPLIES = st.one_of(
    st.lists(PARTS, max_size=12).map("".join),
    st.text(max_size=60),
    st.sampled_from([case[0] for case in CASES.values() if len(case[0]) < 1000]).flatmap(
        lambda reply: st.integers(0, len(reply)).map(lambda end: reply[:end])
    ),
)


@given(REPLIES, st.lists(st.integers(1, 40), max_size=30))
@example("\n" * 600 + CALLS, [1] * 30)
def test_any_cut_gives_the_same_and_nothing_else_is_raised(reply: str, lengths: list[int]) -> None:
    pieces, rest = [], reply
    for length in lengths:
        pieces.append(rest[:length])
        rest = rest[length:]
    whole = read(reply)
    assert read(*pieces, rest) == whole
    assert read(*reply) == whole


ANSWER = st.text(min_size=1).map(lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


@given(ANSWER, st.booleans(), st.sampled_from([None, 1]))
def test_every_answer_comes_through(answer: str, ascii_only: bool, indent: int | None) -> None:
    reply = json.dumps({"reply": {"answer": answer}}, ensure_ascii=ascii_only, indent=indent)
    expected = answer.replace("\0", "\ufffd")  # it can be stored nowhere
    assert read(*reply) == read(reply) == (expected, [])


@given(st.lists(st.tuples(st.sampled_from(["search", "now"]), st.dictionaries(ANSWER, ANSWER, max_size=3)), min_size=1))
def test_all_calls_come_through(calls: list[tuple[str, dict[str, str]]]) -> None:
    told = [{"name": name, "arguments": arguments} for name, arguments in calls]
    text, found = read(json.dumps({"reply": {"calls": told}}))
    assert text == ""
    assert found is not None
    assert [name for name, _ in found] == [name for name, _ in calls]
    assert all(isinstance(json.loads(arguments), dict) for _, arguments in found)
