"""Every answer of an operation, in any test of a server in this process, has the form that the API is said to give."""

import sys
from functools import cache
from typing import Any

import jsonschema
import pytest

from klaw.api.openapi import answer_type, schema_of_answer
from klaw.operations import perform
from klaw.operations.operation import Operation, Scope


@cache
def _validator(name: str) -> Any:
    named: dict[str, Any] = {}
    schema = schema_of_answer(answer_type(perform.operations()[name]), named)
    return jsonschema.Draft202012Validator({**schema, "components": {"schemas": named}})


@pytest.fixture(autouse=True)
def _answers_have_their_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(value: Any, of: Any = perform.plain) -> Any:
        answer = of(value)
        operation: Operation | None = sys._getframe(1).f_locals.get("operation")  # None: a part of an answer
        if operation is not None and not operation.alone and operation.scope is not Scope.CHAT:
            _validator(operation.name).validate(answer)
        return answer

    monkeypatch.setattr(perform, "plain", checked)
