"""The operations as routes, and what the description (OpenAPI) says of them. A new operation is here without a line.

List and show are GET, add is POST, edit PATCH, delete DELETE, of ``/api/v1/facts`` or ``/api/v1/facts/{fact}``; others
are GET, or POST where they change something, of ``/api/v1/facts/{fact}/history``. ``user``, and all arguments of what
reads, stand in the URL, the others in the body; ``fields`` is all of it. ``Operation.route`` may name another route.
"""

from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import attrs
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as Asked

from klaw.api import openapi
from klaw.api.openapi import PREFIX, About, DescribedRoute, Schema, answer_type, schema_of_answer
from klaw.api.request_auth import QUERY, Api
from klaw.convert import MOST_ENTRIES, REQUESTS, Bounds, Wire
from klaw.domain.names import UserId
from klaw.json_schema import schema_of
from klaw.operations.handler import Caller
from klaw.operations.operation import Operation, OperationError, Scope, UserName, told, without_none
from klaw.operations.perform import Call, operations, perform, read, read_call

_METHODS = {"list": "GET", "": "GET", "show": "GET", "add": "POST", "create": "POST"}
_METHODS |= {"edit": "PATCH", "delete": "DELETE", "remove": "DELETE"}
MAX_CLIENT = 64
_MAY_ASK = {
    Scope.USER: "Every user may ask; it is about no user's data.",
    Scope.OWN: "It is about the data of the token's user; an operator may name another one.",
    Scope.OPERATOR: "Needs a token of an operator (klaw token add USER --operator).",
}
_IDS = frozenset({"name", "chat", "topic"})
"""Arguments that name what an operation is about, beside ids that may be shortened."""


@attrs.frozen(kw_only=True)
class Door:
    operation: Operation
    method: str
    path: str
    of_path: str | None
    """The argument that stands in the path, in braces."""
    of_body: frozenset[str]
    """The arguments that stand in the body; ``fields`` is the whole of it."""
    of_query: frozenset[str]

    @property
    def takes_fields(self) -> bool:
        return "fields" in self.of_body


def doors() -> list[Door]:
    """The routes of all operations that a running server carries out, by their paths."""
    asked = [each for each in operations().values() if not each.alone and each.scope is not Scope.CHAT]
    return sorted(map(door, asked), key=lambda each: (each.path, each.method))


def door(operation: Operation) -> Door:
    fields = attrs.fields_dict(operation.arguments)
    method, path = _route_of(operation, fields)
    of_path = path.partition("{")[2].partition("}")[0] or None
    left = set(fields) - {of_path}
    in_body = left - {"user"} if method in ("POST", "PATCH") else set()
    of_body = frozenset({"fields"} if "fields" in in_body else in_body)
    return Door(
        operation=operation,
        method=method,
        path=path,
        of_path=of_path,
        of_body=of_body,
        of_query=frozenset(left - of_body),
    )


def _route_of(operation: Operation, fields: Mapping[str, "attrs.Attribute[Any]"]) -> tuple[str, str]:
    noun = operation.noun.word
    if operation.route is not None:
        method, _, below = operation.route.partition(" ")
        return method, f"{PREFIX}/{noun}/{below}"
    word = operation.cli if operation.cli is not None else operation.name.removeprefix(f"{noun}_")
    method = _METHODS.get(word) or ("POST" if operation.changes else "GET")
    if operation.changes and method == "GET":
        method = "POST"
    named = [each.name for each in fields.values() if told(each).positional and each.default is attrs.NOTHING]
    of_path = next((each for each in named if told(fields[each]).id_of or each in _IDS), None) if word else None
    path = f"{PREFIX}/{noun}" + (f"/{{{of_path}}}" if of_path is not None else "")
    return method, f"{path}/{word}" if word not in _METHODS and word != noun else path


def routes(api: Api) -> list[Route]:
    """One for each operation. A word that has a route of its own is no id: other methods are not allowed there."""
    fixed, others = ([each for each in doors() if bool(each.of_path) is with_id] for with_id in (False, True))
    refused = [Route(path, _NotAllowed()) for path in dict.fromkeys(each.path for each in fixed)]
    return [_by_name(api), *(_route(api, each) for each in fixed), *refused, *(_route(api, each) for each in others)]


@attrs.frozen(kw_only=True)
class OnBehalf:
    """The user for whom an operator asks, with that user's rights only, and the program that asks."""

    user: UserName
    client: Annotated[str, Bounds(1, MAX_CLIENT)] | None = None


@attrs.frozen(kw_only=True)
class CallBody:
    """An operation by its name; the WebSocket's ``call`` is the same."""

    operation: Annotated[str, Bounds(1, 64)]
    args: dict[str, Any] = attrs.field(factory=dict, repr=False)
    on_behalf: Annotated[OnBehalf | None, Wire("as")] = None


def _by_name(api: Api) -> DescribedRoute:
    def asked(body: dict[str, Any]) -> tuple[Call, OnBehalf | None]:
        given = REQUESTS.read(body, CallBody)
        return read_call(given.operation, given.args), given.on_behalf

    async def handle(request: Request) -> Response:
        who = api.caller(request)
        call, on_behalf = await api.json(request, asked)
        if on_behalf is not None:
            if not who.operator:
                raise OperationError("forbidden", "only the operator may ask for another user")
            who = Caller(user=UserId(on_behalf.user), client=on_behalf.client)
        with trio.fail_after(call.operation.deadline_s):
            return JSONResponse(await perform(call, who, api.parts))

    told = "Carry out an operation by its name. The answer is the operation's own."
    about = About("call", told, "operations", body=CallBody, answer=Any)
    return DescribedRoute(f"{PREFIX}/call", handle, "POST", about)


class _NotAllowed:
    """An ASGI object, not a function: Starlette then routes every method to it."""

    async def __call__(self, _scope: Asked, _receive: Receive, _send: Send) -> None:
        raise HTTPException(405)


def _route(api: Api, found: Door) -> DescribedRoute:
    async def handle(request: Request) -> Response:
        who = api.caller(request)
        call = await _call(api, request, found)
        with trio.fail_after(found.operation.deadline_s):
            return JSONResponse(await perform(call, who, api.parts))

    path, types = found.path, attrs.fields_dict(attrs.resolve_types(found.operation.arguments))
    if found.of_path is not None and without_none(types[found.of_path].type) is int:
        path = path.replace("}", ":int}")  # so that a word behind it is another route, whatever the method
    return DescribedRoute(path, handle, found.method, lambda named, _of_path: described(found, named))


async def _call(api: Api, request: Request, found: Door) -> Call:
    types = attrs.fields_dict(attrs.resolve_types(found.operation.arguments, include_extras=True))
    given: dict[str, Any] = {}
    for name in dict.fromkeys(request.query_params):
        if name not in found.of_query:
            known = ", ".join(sorted(found.of_query)) or "none"
            raise OperationError("bad_args", f"is not known in the URL here; known are {known}", field=name)
        values = request.query_params.getlist(name)
        is_list = get_origin(without_none(types[name].type)) in (list, tuple)
        given[name] = values[: MOST_ENTRIES + 1] if is_list else values[-1]  # more are too many anyway
    if found.of_path is not None:
        given[found.of_path] = request.path_params[found.of_path]
    if not found.of_body:
        return read(found.operation, given, QUERY)

    def call(body: dict[str, Any]) -> Call:
        return read(found.operation, {"fields": body, **given} if found.takes_fields else {**body, **given})

    return await api.json(request, call)


def described(found: Door, named: dict[str, Schema]) -> dict[str, Any]:
    operation, of_path = found.operation, found.of_path
    fields = attrs.fields_dict(attrs.resolve_types(operation.arguments, include_extras=True))
    told_of = {name: _schema(field, in_body=name in found.of_body) for name, field in fields.items()}
    parameters = [openapi.parameter(of_path, "path", told_of[of_path], required=True)] if of_path else []
    parameters += [
        openapi.parameter(name, "query", told_of[name], required=_needed(fields[name]))
        for name in sorted(found.of_query)
    ]
    body = told_of["fields"] if found.takes_fields else _object(found.of_body, fields, told_of)
    return openapi.operation_object(
        (operation.name, operation.help, _more_about(operation), operation.noun.word),
        parameters,
        {openapi.JSON: body} if found.of_body else {},
        {openapi.JSON: schema_of_answer(answer_type(operation), named)},
        needed=any(_needed(fields[name]) for name in found.of_body),
    )


def _more_about(operation: Operation) -> str:
    more = " ".join((operation.handler.__doc__ or "").partition("\n\n")[2].split())
    return f"{more} {_MAY_ASK[operation.scope]} It times out after {operation.deadline_s:g} s (504).".lstrip()


def _object(names: frozenset[str], fields: Mapping[str, Any], told_of: Mapping[str, Any]) -> dict[str, Any]:
    required = sorted(name for name in names if _needed(fields[name]))
    made = {"type": "object", "properties": {name: told_of[name] for name in sorted(names)}}
    return {**made, "additionalProperties": False, **({"required": required} if required else {})}


def _needed(field: "attrs.Attribute[Any]") -> bool:
    return field.default is attrs.NOTHING


def _schema(field: "attrs.Attribute[Any]", *, in_body: bool) -> dict[str, Any]:
    kind = field.type
    if not in_body and NoneType in get_args(kind):  # a URL holds no null
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return {**schema_of(kind, exact=True), "description": told(field).help}
