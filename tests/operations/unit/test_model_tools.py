"""Operations as tools of models: what these are told, and how their arguments are read."""

import json
import subprocess
import sys

import pytest

from klaw.operations.model_tools import tools
from klaw.operations.operation import OperationError, Scope
from klaw.operations.perform import read
from tests.support.plugins.golden import Golden


def test_what_models_are_told(golden: Golden) -> None:
    told = []
    for each in tools().values():
        told += [f"== {each.name}", each.help, ""]
        told += [
            f"{name}: {json.dumps(schema, ensure_ascii=False)}" for name, schema in each.schema["properties"].items()
        ]
        told += [f"required: {', '.join(each.schema.get('required', [])) or 'nothing'}", ""]
    golden("tools/mcp", "\n".join(told))


def test_a_tool_is_for_every_user_and_names_none() -> None:
    for each in tools().values():
        assert each.operation.scope in (Scope.OWN, Scope.USER), each.name
        assert "user" not in each.schema["properties"]
        with pytest.raises(OperationError, match="user: is not known"):
            each.arguments({"user": "anna"})


def test_arguments_of_a_nested_class_stand_beside_the_others() -> None:
    correct, asked = tools()["correct"], {"fact": "1a2b", "text": "Любит чай", "importance": 5}
    assert correct.arguments(asked) == {"fact": "1a2b", "fields": {"text": "Любит чай", "importance": 5}}
    assert correct.schema["required"] == ["fact"]
    assert read(correct.operation, correct.arguments(asked)).asked.fields.text == "Любит чай"
    with pytest.raises(OperationError, match="txt: is not known; known are fact, text, category, importance"):
        correct.arguments({"fact": "1a2b", "txt": "x"})


def test_the_sdk_is_loaded_by_the_first_client_only() -> None:
    code = (
        "import sys, klaw.api.app, klaw.cli.mcp, klaw.app.serve; print('mcp' in sys.modules, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
