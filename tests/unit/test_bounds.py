"""26.A2: the work that an input makes is bounded by what is allowed, not by what was sent."""

import difflib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import Annotated, Any, get_args

import attrs
import pytest

from klaw.actor.threads import ON_LOOP_BYTES, read_input
from klaw.api import ollama, openai, page, rags
from klaw.api.client_messages import TranscriptMessage, read_transcript
from klaw.api.conversation import MessageBody
from klaw.chats import commands
from klaw.convert import (
    FRAMES,
    JOURNAL,
    MOST_ENTRIES,
    MOST_PROBLEMS,
    MOST_VALUES,
    REQUESTS,
    Bounds,
    Check,
    Converter,
    Form,
    read_json,
)
from klaw.domain.attachment import MAX_FILES
from klaw.errors import BadValue, KlawError, ProtocolError, TaskError
from klaw.llm.ask_json import MAX_ANSWER_CHARS, read_answer
from klaw.operations.operation import Operation
from klaw.operations.perform import operations, read
from klaw.runs.task_input import subagent_order
from klaw.toolbox.executor import MAX_ARGUMENTS, parse_arguments
from klaw.toolbox.mcp.listing import MAX_BLOCKS, fitted
from klaw.wire import codec
from klaw.wire.codec import decode_client
from klaw.wire.frames import ClientFrame
from tools.attack_large import SHAPES

MODELS = Converter(forbid_unknown=True, lenient=True)
OUTSIDE = [FRAMES, REQUESTS, MODELS]
MANY = 100_000
SHARE = 100_000
"""Bytes of one hostile value."""
MOST_STEPS = 20_000
"""Calls of functions that any of them may take, those of C included; more values than that stand in most of them."""


class Looked:
    """How often a check was asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, value: Any) -> Any:
        self.count += 1
        raise ValueError("is wrong")


@pytest.mark.parametrize("converter", OUTSIDE)
@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda entry: list[entry], ["x"] * MANY),
        (lambda entry: tuple[entry, ...] | None, ["x"] * MANY),
        (lambda entry: Annotated[list[entry] | None, Bounds(1, 5)], ["x"] * 6),
        (lambda entry: Annotated[dict[entry, int], Bounds(at_most=5)], {f"{at}": 1 for at in range(6)}),
        (lambda entry: dict[str, entry], {f"{at}": "x" for at in range(MANY)}),
    ],
)
def test_entries_over_the_bound_are_not_looked_at(
    converter: Converter, make: Callable[[Any], Any], value: object
) -> None:
    looked = Looked()
    with pytest.raises(BadValue, match=r"must have .* entries") as raised:
        converter.read(value, make(Annotated[str, Check(looked)]))
    assert (looked.count, len(raised.value.problems)) == (0, 1)


@pytest.mark.parametrize("converter", [*OUTSIDE, JOURNAL])
def test_reading_stops_at_the_last_problem_that_is_told(converter: Converter) -> None:
    looked = Looked()
    with pytest.raises(BadValue) as raised:
        converter.read(["x"] * MOST_ENTRIES, list[Annotated[str, Check(looked)]])
    assert [each.path for each in raised.value.problems] == [f"[{at}]" for at in range(MOST_PROBLEMS)]
    assert looked.count <= MOST_PROBLEMS + 1


def test_a_form_gets_no_list_over_its_bound_and_the_journal_may_have_any_length() -> None:
    asked = Annotated[list[str], Form(lambda _: pytest.fail("was read"), list), Bounds(1, 256)]
    for length in (257, MANY):
        with pytest.raises(BadValue, match="must have 1 to 256 entries"):
            FRAMES.read(["x"] * length, asked)
    assert len(JOURNAL.read(["x"] * (MOST_ENTRIES + 1), tuple[str, ...])) == MOST_ENTRIES + 1


def test_a_text_over_its_bound_is_not_encoded() -> None:
    with pytest.raises(BadValue, match="must have at most 5 characters"):
        REQUESTS.read("\ud800" * 6, Annotated[str, Bounds(at_most=5)])


def test_only_a_few_short_unknown_names_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda name, *_, **__: asked.append(name) or [])
    fields = {"text": "x", **{"n" * 41 + str(at): 1 for at in range(500)}, "filez": 1, "tex": 1, "wai": 1, "strea": 1}
    with pytest.raises(BadValue, match="unknown field; known are"):
        REQUESTS.read(fields, MessageBody)
    assert asked == ["filez", "strea", "tex"]
    with pytest.raises(BadValue, match=r"must have at most .* members"):
        REQUESTS.read({str(at): 1 for at in range(MANY)}, MessageBody)
    with pytest.raises(TaskError) as raised:
        subagent_order({f"n{at}": 1 for at in range(MANY)})
    assert len(raised.value.problems) <= MOST_PROBLEMS + 5
    asked.clear()
    assert commands.parse("/" + "a" * MANY + " please", ["/forget"]) is None
    assert asked == []


# -- every class that a stranger's words become ------------------------------------------------------------------------

_CLASSES: dict[str, Any] = {
    **{f"frame {each.type}": each for each in get_args(ClientFrame)},
    **{f"operation {name}": each for name, each in operations().items()},
    "send": MessageBody,
    "render": page.ToRender,
    "ask a base": rags.RagQuestion,
    "/v1 chat": openai.OpenAIChatRequest,
    "/v1 embeddings": openai.EmbeddingRequest,
    "/api chat": ollama.OllamaChatRequest,
}


@cache
def _values() -> dict[str, Any]:
    return {name: json.loads(make(SHARE)) for name, make in SHAPES.items() if name not in ("deep", "nested")}


def _steps(function: Callable[[], object]) -> int:
    """How many functions it calls."""
    steps = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        with suppress(KlawError):
            function()
    finally:
        sys.setprofile(None)
    return steps


def _fields(of: Any) -> Iterator[tuple[str, ...]]:
    """The ways to all fields, of nested classes too."""
    kind = of.arguments if isinstance(of, Operation) else of
    for field in attrs.fields(attrs.resolve_types(kind)):
        yield (field.name,)
        if attrs.has(field.type):
            yield from ((field.name, *inner) for inner in _fields(field.type))
    yield ("unknown",)


def _reading(of: Any, tree: dict[str, Any]) -> Callable[[], object]:
    if isinstance(of, Operation):
        return lambda: read(of, tree)
    if of in get_args(ClientFrame):
        return lambda: decode_client(json.dumps({"type": of.type, "version": 2, **tree}), 2 * SHARE)
    return lambda: (REQUESTS if of in (MessageBody, page.ToRender, rags.RagQuestion) else FRAMES).read(tree, of)


@pytest.mark.parametrize("of", _CLASSES.values(), ids=_CLASSES)
def test_the_work_of_every_input_is_bounded(of: Any) -> None:
    for way in _fields(of):
        for name, value in _values().items():
            tree: Any = value
            for part in reversed(way):
                tree = {part: tree}
            steps = _steps(_reading(of, tree))
            assert steps < MOST_STEPS, f"{'.'.join(way)} with {name}: {steps}"


def test_the_first_frame_is_refused_by_its_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    structured = []
    monkeypatch.setattr(codec, "_MARKS", {})
    monkeypatch.setattr(codec, "FRAMES", attrs.make_class("Never", {})())
    text = json.dumps({"type": "send", "id": "m", "chat": "main", "text": "x", "files": [{}] * 20_000})
    with pytest.raises(ProtocolError) as raised:
        decode_client(text, 1 << 20, first=True)
    assert (raised.value.code, structured) == ("hello_first", [])


# -- texts -------------------------------------------------------------------------------------------------------------


def test_values_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "1," * (2 * MOST_VALUES)
    assert read_json(json.dumps({"text": text + '["{\\'}).encode()) == {"text": text + '["{\\'}
    assert read_json(b"\xef\xbb\xbf[1]") == [1]
    monkeypatch.setattr("klaw.convert._DECODER", None)
    for unit in ("1", "{}", "[]", '""', '{"a":[]}'):
        with pytest.raises(ValueError, match="more than"):
            read_json(f"[{','.join([unit] * (MOST_VALUES + 1))}]".encode())
    with pytest.raises(ValueError, match="more than"):
        read_json(b"[" * (MOST_VALUES + 1))


async def test_large_input_is_read_in_a_thread() -> None:
    here = threading.current_thread()
    assert await read_input(ON_LOOP_BYTES, threading.current_thread) is here
    assert await read_input(ON_LOOP_BYTES + 1, threading.current_thread) is not here


def test_arguments_of_calls_are_bounded() -> None:
    assert "in several calls" in str(parse_arguments(json.dumps({"a": "x" * MAX_ARGUMENTS}))[1])
    assert "values" in str(parse_arguments(json.dumps({"a": [1] * (MOST_VALUES + 1)}))[1])
    assert parse_arguments(json.dumps({"a": "x" * (MAX_ARGUMENTS - 10)}))[1] is None


def test_an_open_fence_is_looked_through_once() -> None:
    """It took the square of the lines: hours for these."""
    with pytest.raises(ValueError, match="is not JSON"):
        read_answer("```" + "\n" * (MAX_ANSWER_CHARS - 3), MessageBody)


def test_what_an_mcp_server_answers_is_cut_before_it_is_checked() -> None:
    block = {"type": "text", "text": "x"}
    few: dict[str, Any] = {"content": [block] * MAX_BLOCKS, "isError": False}
    assert fitted(few) == few
    made = fitted({"content": [block] * MANY, "isError": True})
    assert len(made["content"]) == MAX_BLOCKS
    assert made["content"][-1]["text"] == f"[{MANY - MAX_BLOCKS + 1} more parts are left out]"
    assert made["isError"] is True


def test_a_transcript_has_few_pictures_in_its_last_message() -> None:
    with pytest.raises(BadValue, match=f"at most {MAX_FILES} pictures"):
        read_transcript([TranscriptMessage(role="user", content="x", images=[""] * (MAX_FILES + 1))])
    with pytest.raises(BadValue, match="entries"):
        FRAMES.read({"messages": [{"role": "user", "images": [""] * MANY}]}, ollama.OllamaChatRequest)
    picture = "QUJD" * 700_000  # more than is decoded at once
    said = TranscriptMessage(role="user", content="x", images=[picture])
    assert read_transcript([said]).question.files == (b"ABC" * 700_000,)
    for wrong in ("QQ==" + picture, picture + "Q", picture[:-1] + "é", "Q Q="):
        with pytest.raises(BadValue, match="base64"):
            read_transcript([attrs.evolve(said, images=[wrong])])
