"""From typed functions to schemas, and from what models write to arguments."""

import json
from typing import Annotated, Any, Literal

import attrs
import pytest

from klaw.convert import Bounds
from klaw.errors import BadValue
from klaw.json_schema import schema_of
from klaw.toolbox.spec import Permission, ToolContext, tool


@attrs.frozen
class Point:
    x: Annotated[int, "to the right"]
    y: int = 0


@tool(permission=Permission.WRITE, timeout_s=5)
async def draw(
    _context: ToolContext,
    title: Annotated[str, "what it shows", Bounds(at_least=1, at_most=20, pattern=r"[^/]*")],
    points: Annotated[list[Point], "corners", Bounds(at_most=3)],
    colour: Annotated[Literal["red", "синий"], "of the line"] = "red",
    scale: Annotated[float, Bounds(at_least=0.5, at_most=2)] = 1.0,
    note: Annotated[str | None, "below it", Bounds(at_most=5)] = None,
    filled: bool = False,
    copies: int = 1,
) -> str:
    """Draw a polygon.

    Use it for drawings.

    Args:
        title: not shown to the model.
    """
    return f"{title} {points} {colour} {scale} {note} {filled} {copies}"


GIVEN: dict[str, Any] = {"title": "T", "points": [{"x": 1}]}


def bound(**changes: Any) -> dict[str, Any]:
    return dict(draw.bind({**GIVEN, **changes}))


def refusal(**changes: Any) -> str:
    with pytest.raises(BadValue) as caught:
        bound(**changes)
    return "; ".join(map(str, caught.value.problems))


def test_the_schema_says_what_the_signature_says() -> None:
    assert draw.name == "draw"
    assert draw.description == "Draw a polygon.\n\nUse it for drawings."
    assert draw.permission is Permission.WRITE
    schema = draw.told.parameters
    assert schema["required"] == ["title", "points"]
    assert "additionalProperties" not in schema
    assert list(schema["properties"]) == ["title", "points", "colour", "scale", "note", "filled", "copies"]
    assert schema["properties"]["title"] == {
        "type": "string",
        "description": "what it shows",
        "minLength": 1,
        "maxLength": 20,
        "pattern": "^(?:[^/]*)$",
    }
    assert schema["properties"]["points"]["items"]["properties"]["x"] == {
        "type": "integer",
        "description": "to the right",
    }
    assert schema["properties"]["colour"]["enum"] == ["red", "синий"]
    assert schema["properties"]["scale"] == {"type": "number", "minimum": 0.5, "maximum": 2, "default": 1.0}
    assert schema["properties"]["note"]["type"] == "string"
    json.dumps(schema, allow_nan=False)


def test_good_arguments_become_typed_values_and_defaults_stay_with_the_function() -> None:
    assert bound() == {"title": "T", "points": [Point(1, 0)]}
    assert bound(note="тест", scale=2, filled=True)["scale"] == 2.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"copies": "5"}, {"copies": 5}),
        ({"copies": 5.0}, {"copies": 5}),
        ({"copies": "-7.0"}, {"copies": -7}),
        ({"filled": "true"}, {"filled": True}),
        ({"filled": "False"}, {"filled": False}),
        ({"scale": "1.5"}, {"scale": 1.5}),
        ({"points": '[{"x": 2}]'}, {"points": [Point(2)]}),
        ({"points": ['{"x": "2"}']}, {"points": [Point(2)]}),
    ],
)
def test_what_can_only_mean_one_thing_is_taken(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = bound(**given)
    assert {name: found[name] for name in expected} == expected


def test_null_takes_the_default() -> None:
    assert "copies" not in bound(copies=None)
    assert refusal(title=None) == "title: must be a text"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"copies": "five"}, "copies: must be a whole number"),
        ({"copies": 1.5}, "copies: must be a whole number"),
        ({"copies": True}, "copies: must be a whole number"),
        ({"copies": 10**40}, "copies: must be a whole number below 2^53"),
        ({"scale": float("nan")}, "scale: must be a number below 2^53"),
        ({"scale": 10**400}, "scale: must be a number below 2^53"),
        ({"scale": 3}, "scale: must be 0.5 to 2"),
        ({"filled": 1}, "filled: must be true or false"),
        ({"filled": "yes"}, "filled: must be true or false"),
        ({"title": 5}, "title: must be a text"),
        ({"title": ""}, "title: must have 1 to 20 characters"),
        ({"title": "a/b"}, "title: must have the form"),
        ({"title": "a\0"}, "title: must not hold NUL"),
        ({"title": "\ud800"}, "title: must not hold NUL or half a surrogate pair"),
        ({"colour": "green"}, "colour: must be one of red, синий"),
        ({"points": {}}, "points: must be a list"),
        ({"points": [{"x": 1}] * 4}, "points: must have at most 3 entries"),
        ({"points": [{"x": 1}, {"y": 1}]}, "points[1].x: is required"),
        ({"points": [{"x": 1, "z": 2}]}, "points[0]: unknown field; known are x, y"),
        ({"colr": "red"}, "unknown field; known are title, points, colour,"),
        ({"note": "too long"}, "note: must have at most 5 characters"),
    ],
)
def test_bad_arguments_are_named(given: dict[str, Any], words: str) -> None:
    assert words in refusal(**given)


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(BadValue) as caught:
        draw.bind({"title": "", "copies": "x"})
    assert [problem.path for problem in caught.value.problems] == ["title", "points", "copies"]


@pytest.mark.parametrize("kind", [dict, int | str, Literal["a", 1], bytes, object, Any, complex])
def test_types_that_cannot_be_told_to_a_model_are_refused_when_the_tool_is_made(kind: Any) -> None:
    with pytest.raises(TypeError):
        schema_of(kind)


def test_a_tool_needs_a_docstring_and_types() -> None:
    async def silent(_context: ToolContext) -> str:
        return ""

    async def untyped(_context: ToolContext, a) -> str:  # type: ignore[no-untyped-def]
        """Do."""
        return str(a)

    with pytest.raises(TypeError, match="needs a docstring"):
        tool(permission=Permission.READ)(silent)
    with pytest.raises(TypeError, match="needs a type for a"):
        tool(permission=Permission.READ)(untyped)
    with pytest.raises(ValueError, match="name"):
        attrs.evolve(draw, name="bad name")


@attrs.frozen
class Edit:
    search: Annotated[str, Bounds(at_least=1)]
    note: str | None = None


def test_what_the_tool_checks_by_itself_is_not_told() -> None:
    @attrs.frozen
    class Arguments:
        who: Literal["user", "assistant"] | None = None
        edits: Annotated[list[Edit], Bounds(at_least=1, at_most=9)] = attrs.Factory(list)
        limit: Annotated[int, Bounds(at_least=1, at_most=30)] = 8

    assert schema_of(Arguments) == {
        "type": "object",
        "properties": {
            "who": {"type": "string", "enum": ["user", "assistant"]},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"search": {"type": "string", "minLength": 1}, "note": {"type": "string"}},
                    "required": ["search"],
                },
                "minItems": 1,
                "maxItems": 9,
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": 30, "default": 8},
        },
    }


@pytest.mark.parametrize("wrong", [{"text": ""}, {"text": "x", "more": 1}, {}, {"text": None}])
def test_it_is_checked_all_the_same(wrong: dict[str, Any]) -> None:
    @tool(permission=Permission.READ)
    async def note(_context: Any, text: Annotated[str, Bounds(at_least=1)], to: str | None = None) -> str:
        """Note something."""
        return text + (to or "")

    assert note.parameters == {
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 1}, "to": {"type": "string"}},
        "required": ["text"],
    }
    assert note.bind({"text": "x", "to": None})["text"] == "x"
    with pytest.raises(BadValue):
        note.bind(wrong)
