"""The OpenAPI 3.1 document: what each route under /api/v1 says of itself, at /api/openapi.json."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeAlias

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from klaw import __version__
from klaw.api.answer_schema import Schema, schema_of_answer
from klaw.api.problems import Handler
from klaw.gateway.origin_check import COOKIE
from klaw.json_schema import schema_of

PREFIX = "/api/v1"
JSON = "application/json"

_PROBLEM: Schema = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
                "required": ["field", "message"],
            },
        },
    },
    "required": ["type", "title", "status", "code", "detail"],
}


Describe: TypeAlias = Callable[[dict[str, Schema]], dict[str, Any]]
"""Given the schemas of classes, to which it adds, it returns an "operation object"."""


class DescribedRoute(Route):
    """A route that the document tells of.

    Args:
        describe: what it says; asked only when somebody asks for the document.
    """

    def __init__(self, path: str, handler: Handler, method: str, describe: Describe) -> None:
        super().__init__(path, handler, methods=[method])
        self.method = method.lower()
        self.describe = describe


@attrs.frozen(kw_only=True)
class About:
    """What the document says of a route that is no operation; call it for the "operation object"."""

    name: str
    """Unique."""
    help: str
    tag: str
    of_path: str | None = None
    """The parameter in its path."""
    query: type[attrs.AttrsInstance] | None = None
    """A parameter of the path among its fields is left out."""
    body: type[attrs.AttrsInstance] | None = None
    """Read as JSON …"""
    takes: str | None = None
    """… or else the media type of a body."""
    answer: Any = None
    """The type of the JSON that it gives."""
    written: bool = True
    """See ``schema_of_answer``."""
    gives: tuple[str, ...] = (JSON,)
    """Media types; none: no body."""
    status: int = 200

    def __call__(self, named: dict[str, Schema]) -> dict[str, Any]:
        asked = schema_of(self.query) if self.query is not None else {"properties": {}}
        of_query = [name for name in asked["properties"] if name != self.of_path]
        told = head(self.name, self.help, self.tag)
        if self.of_path is not None:
            told["parameters"] = [parameter(self.of_path, "path", {"type": "string"}, required=True)]
        told.setdefault("parameters", []).extend(
            parameter(name, "query", asked["properties"][name], required=name in asked.get("required", ()))
            for name in of_query
        )
        if self.body is not None:
            told["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of(self.body, exact=True)}}}
        elif self.takes is not None:
            told["requestBody"] = {"required": True, "content": {self.takes: {"schema": {}}}}
        answers = {
            each: schema_of_answer(self.answer, named, written=self.written) if each == JSON else {}
            for each in self.gives
        }
        told["responses"] = responses(self.status, answers)
        return told


def routes(described: Iterable[BaseRoute]) -> list[Route]:
    """The document of these routes."""

    @cache
    def whole() -> bytes:
        return bytes(JSONResponse(description(described)).body)

    async def describe(_request: Request) -> Response:
        return Response(whole(), media_type=JSON)

    return [Route("/api/openapi.json", describe, methods=["GET"])]


def description(described: Iterable[BaseRoute]) -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    named = {"Problem": _PROBLEM}
    for each in described:
        if isinstance(each, DescribedRoute):
            paths.setdefault(each.path_format, {})[each.method] = each.describe(named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Klaw", "version": __version__, "license": {"name": "Apache-2.0"}},
        "security": [{"token": []}, {"login": []}, {}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "login": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
            "schemas": dict(sorted(named.items())),
        },
    }


def head(name: str, summary: str, tag: str) -> dict[str, Any]:
    """What each operation object begins with."""
    return {"operationId": name, "summary": summary, "tags": [tag]}


def parameter(name: str, where: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema}


def responses(status: int, told: dict[str, Any]) -> dict[str, Any]:
    """A good answer by its media types, and a problem."""
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    good: dict[str, Any] = {"description": "done"}
    if told:
        good["content"] = {media: {"schema": schema} for media, schema in told.items()}
    return {
        str(status): good,
        "default": {"description": "a problem", "content": {"application/problem+json": problem}},
    }
