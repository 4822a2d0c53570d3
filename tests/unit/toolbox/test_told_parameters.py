"""What a model is told of a tool's parameters: shorter than what is checked, and never more permissive in effect."""

from typing import Annotated, Any, Literal

import attrs
import pytest

from klaw.toolbox.shapes import Limit, Unfit, object_shape, shape_of, told
from klaw.toolbox.spec import Permission, tool


@attrs.frozen
class Edit:
    search: Annotated[str, Limit(at_least=1)]
    note: str | None = None


def test_what_the_tool_checks_by_itself_is_not_told() -> None:
    shape = object_shape(
        {
            "who": (shape_of(Literal["user", "assistant"] | None), None),
            "edits": (shape_of(Annotated[list[Edit], Limit(at_least=1, at_most=9)]), []),
            "limit": (shape_of(Annotated[int, Limit(at_least=1, at_most=30)]), 8),
        }
    )
    assert told(shape.schema) == {
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
    async def note(_context: Any, text: Annotated[str, Limit(at_least=1)], to: str | None = None) -> str:
        """Note something."""
        return text + (to or "")

    assert note.parameters == {
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 1}, "to": {"type": "string"}},
        "required": ["text"],
    }
    assert note.bind({"text": "x", "to": None})["text"] == "x"
    with pytest.raises(Unfit):
        note.bind(wrong)
