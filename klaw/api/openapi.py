"""The OpenAPI 3.1 document: what each route under /api/v1 says of itself, at /api/openapi.json."""

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from klaw import __version__
from klaw.api.problems import Handler
from klaw.api.request_auth import prefix_of
from klaw.convert import wire_name
from klaw.domain.notes import Column, notes
from klaw.gateway.origin_check import COOKIE
from klaw.json_schema import schema_of
from klaw.operations import answers
from klaw.operations.operation import Operation

PREFIX = "/api/v1"
JSON = "application/json"
WHAT = "A personal assistant with a memory."
_ABOUT = {"contact": {"name": "The operator of this server"}, "license": {"name": "Apache-2.0"}}

Schema: TypeAlias = dict[str, Any]
EVENTS: Schema = {"type": "string"}
BYTES: Schema = {"type": "string", "format": "binary"}
"""As OpenAPI 3.0 has it: makers of clients know no other form."""


class FieldProblem(TypedDict):
    field: str
    message: str


class ProblemDetails(TypedDict):
    """What is answered where something is wrong (``api.problems``)."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: NotRequired[list[FieldProblem]]


Describe: TypeAlias = Callable[[dict[str, Schema], str | None], dict[str, Any]]
"""Given the schemas of classes, to which it adds, and the parameter in the path, it returns an "operation object"."""


class DescribedRoute(Route):
    """A route that the document tells of; ``describe`` is called only when somebody asks for the document."""

    def __init__(self, path: str, handler: Handler, method: str, describe: Describe) -> None:
        super().__init__(path, handler, methods=[method])
        self.method = method.lower()
        self.describe = describe


@attrs.frozen
class About:
    """What the document says of a route that is no operation; call it for the "operation object"."""

    name: str
    help: str
    """Summary and description, each a sentence."""
    tag: str
    query: type[attrs.AttrsInstance] | None = None
    """All of its fields have defaults."""
    body: type[attrs.AttrsInstance] | None = None
    """Read as JSON …"""
    takes: str | None = None
    """… or else the media type of a body."""
    answer: Any = None
    """The type of the JSON that it gives."""
    written: bool = True
    """Whether the answer is as its converter writes it, see ``schema_of_answer``."""
    gives: tuple[str, ...] = (JSON,)
    """Media types; none: no body."""
    status: int = 200

    def __call__(self, named: dict[str, Schema], of_path: str | None) -> dict[str, Any]:
        asked = schema_of(self.query)["properties"] if self.query is not None else {}
        answer = schema_of_answer(self.answer, named, written=self.written) if JSON in self.gives else {}
        summary, _, more = self.help.partition(". ")
        return operation_object(
            (self.name, f"{summary}.", more, self.tag),
            [
                *([parameter(of_path, "path", {"type": "string"}, required=True)] if of_path else []),
                *(parameter(name, "query", schema) for name, schema in asked.items()),
            ],
            {JSON: schema_of(self.body, exact=True)} if self.body else {self.takes: BYTES} if self.takes else {},
            {each: answer if each == JSON else EVENTS if each.startswith("text/") else BYTES for each in self.gives},
            status=self.status,
        )


def routes(described: Iterable[BaseRoute]) -> list[Route]:
    @lru_cache(4)
    def whole(prefix: str) -> bytes:
        return bytes(JSONResponse(description(described, prefix)).body)

    async def describe(request: Request) -> Response:
        return Response(whole(prefix_of(request)), media_type=JSON)

    return [Route("/api/openapi.json", describe, methods=["GET"])]


def description(described: Iterable[BaseRoute], prefix: str = "") -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    named: dict[str, Schema] = {}
    schema_of_answer(ProblemDetails, named)
    for each in described:
        if isinstance(each, DescribedRoute):
            of_path = next(iter(each.param_convertors), None)
            paths.setdefault(each.path_format, {})[each.method] = each.describe(named, of_path)
    tags = {tag for methods in paths.values() for each in methods.values() for tag in each["tags"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Klaw", "description": WHAT, "version": __version__, **_ABOUT},
        "servers": [{"url": prefix or "/"}],
        "tags": [{"name": each} for each in sorted(tags)],
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


def operation_object(
    about: tuple[str, str, str, str],
    parameters: list[dict[str, Any]],
    body: Mapping[str, Schema],
    answers: Mapping[str, Schema],
    *,
    needed: bool = True,
    status: int = 200,
) -> dict[str, Any]:
    """What the document says of one route. ``about``: name, summary, description and tag; ``body``, ``answers``:
    schemas by media type, none where there is no body; ``needed``: whether a request needs its body."""
    name, summary, more, tag = about
    problem = _content({"application/problem+json": {"$ref": "#/components/schemas/ProblemDetails"}})
    return {
        "operationId": name,
        "summary": summary,
        "description": more,
        "tags": [tag],
        "parameters": parameters,
        **({"requestBody": {"required": needed, **_content(body)}} if body else {}),
        "responses": {
            str(status): {"description": "done", **_content(answers)},
            "default": {"description": "a problem", **problem},
        },
    }


def _content(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    return {"content": {media: {"schema": each} for media, each in schemas.items()}} if schemas else {}


def parameter(name: str, where: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema}


# -- schemas of what is answered, made of the types that handlers name ------------------------------------------------

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}


def answer_type(operation: Operation) -> Any:
    if operation.answers is not None:
        return operation.answers
    return get_type_hints(operation.handler, localns=vars(answers), include_extras=True).get("return", Any)


def schema_of_answer(kind: Any, named: dict[str, Schema], *, written: bool = False) -> Schema:
    """The schema of a type: a ``TypedDict``, an attrs class with all its fields, lists, dicts, ``Literal``, enums,
    unions of these. Raises TypeError: another type, or a second class of the same name.

    Args:
        named: gets the schemas of the classes, to which ``$ref`` points, by their names.
        written: attrs classes are as their converter writes them: with the names outside, and what has a default may
            be left out.
    """
    kind = getattr(kind, "__supertype__", kind)  # of a NewType
    origin, inner = get_origin(kind), get_args(kind)
    part = partial(schema_of_answer, named=named, written=written)
    if origin is Annotated:
        return part(next((note for note in inner[1:] if is_typeddict(note)), inner[0]))
    if origin in (NotRequired, Required):
        return part(inner[0])
    if kind is Any:
        return {}
    if origin in (Union, UnionType):
        parts = [part(each) for each in inner]
        if all(each.keys() == {"type"} for each in parts):
            return {"type": [each["type"] for each in parts]}
        return {"anyOf": parts}
    if origin is Literal:
        return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": part(inner[0])}
    if origin in (dict, Mapping):
        entries = part(inner[1])
        return {"type": "object", **({"additionalProperties": entries} if entries else {})}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if inspect.isclass(kind) and issubclass(kind, enum.StrEnum):
        return {"type": "string", "enum": [each.value for each in kind]}
    if is_typeddict(kind) or (inspect.isclass(kind) and attrs.has(kind)):
        return _named(kind, named, written=written)
    raise TypeError(f"no schema is known of the type {kind!r}")


def _named(kind: Any, named: dict[str, Schema], *, written: bool) -> Schema:
    is_class = attrs.has(kind)
    name, of = kind.__name__, f"{kind.__module__}.{kind.__qualname__}"
    if is_class and ".wire." in of:
        written = True  # frames are never written otherwise
    elif is_class and written:
        name, of = f"{name}Written", f"{of} as it is written"
    if name not in named:
        named[name] = {"$comment": of}  # one that holds itself finds it
        hints = get_type_hints(kind, localns=vars(answers), include_extras=True)
        if is_class:
            fields = attrs.fields(attrs.resolve_types(kind, localns=vars(answers), include_extras=True))
            names = {each.name: wire_name(each) if written else each.name for each in fields}
            required = [names[each.name] for each in fields if not written or each.default is attrs.NOTHING]
        else:
            names, required = dict.fromkeys(hints), sorted(kind.__required_keys__)
        properties = {names[each] or each: schema_of_answer(hints[each], named, written=written) for each in names}
        for each, column in notes(kind, Column).items() if is_class else ():
            properties[names[each]] = {**properties[names[each]], "title": column.title or each}
        named[name] |= {"type": "object", "properties": properties, "required": required}
    if named[name]["$comment"] != of:
        raise TypeError(f"two classes have the name {name}")
    return {"$ref": f"#/components/schemas/{name}"}
