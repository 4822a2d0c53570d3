"""Results, lists of tools and lines of MCP servers: pure parts."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.toolbox.mcp.listing import MAX_DESCRIPTION, ListedTool, chosen, described, fitted
from klaw.toolbox.mcp.results import MAX_PICTURES, NO_TEXT, text_of
from klaw.toolbox.mcp.stdio import BoundedLines, TooLong
from klaw.toolbox.spec import ToolFailure


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "text", "text": "Да"}, {"type": "text", "text": "yes"}]}, "Да\nyes"),
        ({"content": []}, NO_TEXT),
        ({}, NO_TEXT),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "A" * 4096}]},
            "[image, image/png, 3 KiB: cannot be shown]",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "внутри"}}]},
            "[file:///a]\nвнутри",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}]},
            "[file:///a, binary, 3 bytes: cannot be shown]",
        ),
        ({"content": [{"type": "resource_link", "name": "n", "uri": "u"}]}, "[link: n, u]"),
        ({"content": [{"type": "hologram"}, "no block", None]}, "[content of type hologram: cannot be shown]"),
        ({"content": [], "structuredContent": {"снег": True}}, '{"снег": true}'),
        ({"content": [{"type": "text", "text": "{}"}], "structuredContent": {"a": 1}}, "{}"),
        ({"content": "no list"}, NO_TEXT),
    ],
)
def test_content_as_text(result, text):
    assert text_of(result) == text


def test_pictures_of_tools():
    """26.D4: those that models take are handed on; others are named."""
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
    image = {"type": "image", "mimeType": "image/png", "data": png}
    blob = {"type": "resource", "resource": {"uri": "file:///a.png", "blob": png}}
    svg = {"type": "image", "mimeType": "image/svg+xml", "data": base64.b64encode(b"<svg/>").decode()}
    found = text_of({"content": [{"type": "text", "text": "Here"}, image, blob, svg, {"type": "image"}]})
    assert found.text.splitlines() == [
        "Here",
        "[picture 1, image/png, 69 bytes]",
        "[picture 2: file:///a.png, image/png, 69 bytes]",
        "[image, image/svg+xml, 6 bytes: cannot be shown]",
        "[image, ?, 0 bytes: cannot be shown]",
    ]
    assert [each.media_type for each in found.pictures] == ["image/png"] * 2
    assert len(text_of({"content": [image] * 9}).pictures) == MAX_PICTURES


def test_tools_that_can_only_be_called_as_tasks_are_not_offered():
    """26.D4"""
    tools = [{"name": name, "execution": {"taskSupport": name}} for name in ("required", "optional", "forbidden")]
    assert [tool["name"] for tool in fitted({"tools": tools})["tools"]] == ["optional", "forbidden"]
    odd = [{"name": "a", "execution": "required"}, {"name": "b", "execution": {"taskSupport": ["required"]}}]
    assert len(fitted({"tools": odd})["tools"]) == 2


def test_errors_of_tools():
    assert text_of({"isError": True, "content": [{"type": "text", "text": "нет"}]}) == ToolFailure("нет")
    assert isinstance(text_of({"isError": True}), ToolFailure)


def test_many_parts_are_bounded():
    text = text_of({"content": [{"type": "text", "text": "x"}] * 100_000})
    assert text.endswith("[99001 more parts are left out]")


def test_a_list_of_tools_is_chosen_by_pattern_and_cut():
    tools = [ListedTool(name=name, description="", schema=None) for name in ("b", "a", "read_x", "c", "a")]
    assert [tool.name for tool in chosen(tools, ["*"], 2)[0]] == ["a", "b"]
    assert chosen(tools, ["*"], 2)[1] == 2
    assert [tool.name for tool in chosen(tools, ["read_*", "c"], 9)[0]] == ["c", "read_x"]


def test_a_description_is_bounded_and_says_where_it_is_from():
    text = described("s", "\x1b[31mred" + "x" * 50_000)
    assert text.startswith("redxxx")
    assert len(text) < MAX_DESCRIPTION + 50
    assert text.endswith("…\n(From the MCP server s.)")


@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["name", "tools", "inputSchema", "properties", "required", "nextCursor"]), inner)))  # fmt: skip
def test_any_list_of_tools_is_made_to_fit(value):
    made = fitted({"tools": value, "nextCursor": value})
    assert all(isinstance(tool["name"], str) and tool["inputSchema"]["type"] == "object" for tool in made["tools"])


@given(st.lists(st.binary(max_size=30)), st.integers(1, 40))
def test_lines_are_the_same_however_they_arrive(pieces, limit):
    data = b"".join(pieces) + b"\n"
    whole, parts = BoundedLines(limit), BoundedLines(limit)
    expected = list(whole.feed(data))
    assert [line for piece in (*pieces, b"\n") for line in parts.feed(piece)] == expected
    given_lines = data.split(b"\n")[:-1]
    assert [line if len(line) <= limit else None for line in given_lines] == [
        None if isinstance(line, TooLong) else line for line in expected
    ]


@pytest.mark.parametrize(
    "order", [("jsonrpc", "id", "result"), ("id", "jsonrpc", "result"), ("result", "id"), ("result", "jsonrpc", "id")]
)
def test_a_line_that_is_too_long_tells_what_it_answers(order):
    message = {"jsonrpc": "2.0", "id": 17, "result": {"id": 3, "text": "x" * 5000, "more": {"id": 5}}}
    data = json.dumps({key: message[key] for key in order}).encode() + b"\n{}\n"
    lines = BoundedLines(1000)
    found = [line for begin in range(0, len(data), 7) for line in lines.feed(data[begin : begin + 7])]
    assert found == [TooLong(17), b"{}"]


def test_a_line_that_is_too_long_takes_no_memory():
    lines = BoundedLines(1000)
    for _ in range(1000):
        assert list(lines.feed(b"x" * 65_536)) == []
    assert len(lines._kept) + len(lines._tail) < 1000
    assert list(lines.feed(b"\nok\n")) == [TooLong(None), b"ok"]
