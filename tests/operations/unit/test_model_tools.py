"""Operations as tools of models: what these are told, and how their arguments are read."""

import inspect
import json
import subprocess
import sys

import pytest

from klaw.operations.operation import OperationError, Scope
from klaw.operations.perform import read, read_tool_call, schema_of_tool, tools
from tests.support.plugins.golden import Golden


def test_what_models_are_told(golden: Golden) -> None:
    told = []
    for name, each in tools().items():
        schema = schema_of_tool(each)
        told += [f"== {name}", inspect.getdoc(each.handler), ""]
        told += [f"{name}: {json.dumps(inner, ensure_ascii=False)}" for name, inner in schema["properties"].items()]
        told += [f"required: {', '.join(schema.get('required', [])) or 'nothing'}", ""]
    golden("tools/mcp", "\n".join(told))


def test_a_tool_is_for_every_user_and_names_none() -> None:
    for name, each in tools().items():
        assert each.scope in (Scope.OWN, Scope.USER), name
        assert "user" not in schema_of_tool(each)["properties"]
        with pytest.raises(OperationError, match="user: is not known"):
            read_tool_call(name, {"user": "anna"})


def test_arguments_of_a_nested_class_stand_beside_the_others() -> None:
    asked = {"fact": "1a2b", "text": "Любит чай", "importance": 5}
    correct, arguments = read_tool_call("correct", asked)
    assert arguments == {"fact": "1a2b", "fields": {"text": "Любит чай", "importance": 5}}
    assert schema_of_tool(correct)["required"] == ["fact"]
    assert read(correct, arguments).asked.fields.text == "Любит чай"
    with pytest.raises(OperationError, match="txt: is not known; known are fact, text, category, importance"):
        read_tool_call("correct", {"fact": "1a2b", "txt": "x"})


def test_the_sdk_is_loaded_by_the_first_client_only() -> None:
    code = (
        "import sys, klaw.api.app, klaw.cli.mcp, klaw.app.serve; print('mcp' in sys.modules, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
