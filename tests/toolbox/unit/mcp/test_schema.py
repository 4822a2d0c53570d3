"""Schemas that servers write: whatever comes in, what goes out is small, closed in itself and harmless."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.errors import BadValue
from klaw.toolbox.mcp.listing import MAX_CHARS, OPEN, parameters_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "$ref", "$defs", "required", "enum", "anyOf", "default", "pattern", "ы"]
            )
            | st.text(max_size=10),
            inner | st.sampled_from(["#/$defs/A", "#", "#/properties/ы", "object", "array", "string"]),
            max_size=6,
        )
    ),
    max_leaves=60,
)


@given(JSON)
def test_any_schema_becomes_a_harmless_one(schema):
    made = parameters_of(schema).schema
    text = json.dumps(made, ensure_ascii=False, allow_nan=False)
    assert made["type"] == "object"
    assert len(text) <= MAX_CHARS
    assert '"$ref"' not in text


@given(JSON, st.dictionaries(st.text(max_size=8), JSON, max_size=5))
def test_arguments_are_bound_or_refused(schema, arguments):
    with contextlib.suppress(BadValue):
        parameters_of(schema).bind(arguments)


def test_a_usual_schema_keeps_what_matters():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Args",
        "properties": {
            "город": {"type": "string", "description": "где"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1, "title": "Days"},
            "unit": {"$ref": "#/$defs/Unit"},
            "code": {"anyOf": [{"type": "string", "pattern": "^[A-Z]+$"}, {"type": "null"}]},
        },
        "required": ["город"],
        "additionalProperties": False,
        "$defs": {"Unit": {"enum": ["C", "F"], "type": "string"}},
    }
    parameters = parameters_of(schema)
    assert parameters.schema == {
        "type": "object",
        "properties": {
            "parameter": {"type": "string", "description": "где"},
            "days": {"type": "integer", "default": 1, "minimum": 1, "maximum": 7},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "code": {"anyOf": [{"type": "string", "description": "(pattern: ^[A-Z]+$)"}, {"type": "null"}]},
        },
        "required": ["parameter"],
    }
    assert parameters.bind({"parameter": "Омск", "days": "3", "unit": None}) == {"город": "Омск", "days": 3}
    with pytest.raises(BadValue, match="is required"):
        parameters.bind({})


@pytest.mark.parametrize("schema", [None, "x", 5, [], {"type": "array"}, {"properties": 1}, {"$ref": "#"}])
def test_no_schema_is_an_open_one(schema):
    assert parameters_of(schema).schema == OPEN


def test_recursion_ends_and_references_lead_nowhere_else():
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}
    schema = {
        "properties": {"tree": {"$ref": "#/$defs/Tree"}, "out": {"$ref": "file:///etc/passwd"}},
        "$defs": {"Tree": tree},
    }
    made = parameters_of(schema).schema["properties"]
    assert made == {"tree": {"type": "object", "properties": {"left": {}}}, "out": {}}


def test_a_huge_schema_loses_descriptions_first():
    properties = {f"p{n}": {"type": "string", "description": "d" * 5000} for n in range(50)}
    made = parameters_of({"properties": properties}).schema
    assert made["properties"]["p49"] == {"type": "string"}


def test_numbers_that_are_no_json_are_left_out():
    made = parameters_of({"properties": {"a": {"default": math.inf, "enum": [math.nan], "maximum": math.nan}}}).schema
    assert made["properties"] == {"a": {}}


def test_an_object_inside_with_names_that_providers_refuse_is_left_open():
    inner = {"type": "object", "properties": {"имя": {"type": "string"}}, "required": ["имя"]}
    assert parameters_of({"properties": {"who": inner}}).schema["properties"]["who"] == {"type": "object"}
