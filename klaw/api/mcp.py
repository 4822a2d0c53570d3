"""``/mcp``: MCP over streamable HTTP. No session is kept: every request is answered by itself, as JSON, and the tasks
of the SDK end with it. The first request loads the SDK.
"""

import importlib
import importlib.util
import json
from functools import partial
from typing import Any, cast

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from klaw.actor.threads import Threads
from klaw.api.problems import of_error, problem
from klaw.api.request_auth import Api, address_of
from klaw.api.streams import while_connected
from klaw.errors import INSTALL_AGAIN, HttpRefusal
from klaw.operations.handler import Caller
from klaw.operations.perform import perform, read, read_tool_call

PATH = "/mcp"
MAX_BYTES = 65_536
"""Longest request, more than the arguments of any tool need: the SDK reads it on the event loop, without bounds."""
VERSION_HEADER = "MCP-Protocol-Version"
WITH_BATCHES = "2025-03-26"
"""The version that has batches; clients of it do not send the header yet."""
MAX_BATCH = 20


_OF_RESOURCE, _OF_SERVER = (f"/.well-known/oauth-{each}" for each in ("protected-resource", "authorization-server"))


def routes(api: Api) -> list[BaseRoute]:
    threads = Threads("loading MCP", 1)
    authorizing: Any = None

    async def authorize(request: Request) -> Response:
        nonlocal authorizing
        oauth = await threads.run(importlib.import_module, "klaw.api.oauth")
        authorizing = authorizing or oauth.AuthorizationServer(api)
        return cast("Response", await authorizing.answer(request))

    async def answer(request: Request) -> Response:
        try:
            grant = api.grant(request, mcp=True)
        except HttpRefusal as refused:
            if refused.status != 401:
                raise
            place = f"{address_of(request, api)}{_OF_RESOURCE}{PATH}"
            wrong = 'error="invalid_token", ' if "authorization" in request.headers else ""
            told = f'Bearer {wrong}resource_metadata="{place}", scope="mcp"'
            raise HttpRefusal(401, str(refused), {"WWW-Authenticate": told}) from None
        body = await api.body(request, MAX_BYTES)
        if importlib.util.find_spec("mcp") is None:
            return problem(501, "not_implemented", f"the Python package mcp is missing: {INSTALL_AGAIN}")
        sdk = await threads.run(importlib.import_module, "klaw.api.mcp_server")
        # Never more than the user's own: an operator's token is one in the hands of a model here.
        caller = Caller(user=grant.user, client=f"mcp:{grant.token or 'local'}")
        answering = partial(sdk.answering, partial(_ask, sdk, api, caller), address_of(request, api))
        if body.lstrip()[:1] == b"[" and request.headers.get(VERSION_HEADER, WITH_BATCHES) == WITH_BATCHES:
            return await while_connected(request.receive, partial(_answer_batch, answering, body, request.scope))
        return cast("Response", partial(_answer, answering, body))

    return [
        Route(PATH, answer, methods=["POST"]),
        *(Route(f"{each}{{resource:path}}", authorize, methods=["GET"]) for each in (_OF_RESOURCE, _OF_SERVER)),
        Route("/oauth/authorize", authorize, methods=["GET", "POST"]),
        *(Route(f"/oauth/{each}", authorize, methods=["POST"]) for each in ("token", "register", "revoke")),
    ]


async def _answer(answering: Any, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    begun = False

    async def again() -> Message:
        nonlocal begun
        if begun:
            return await receive()
        begun = True
        return {"type": "http.request", "body": body, "more_body": False}

    async with answering() as manager:
        await manager.handle_request(scope, again, send)


async def _answer_batch(answering: Any, body: bytes, scope: Scope) -> Response:
    """Answer several messages one after the other, each by itself."""
    try:
        messages = json.loads(body)
    except (ValueError, RecursionError):
        return JSONResponse(_refused(-32700, "this is not JSON"), 400)
    if not 0 < len(messages) <= MAX_BATCH:
        return JSONResponse(_refused(-32600, f"a batch has 1 to {MAX_BATCH} messages"), 400)
    answers: list[Any] = []
    for message in messages:
        if not isinstance(message, dict) or message.get("method") == "initialize":
            own = message.get("id") if isinstance(message, dict) else None
            answers.append(_refused(-32600, "this cannot stand in a batch", own))
            continue
        said = bytearray()

        async def keep(part: Message, said: bytearray = said) -> None:
            said.extend(part.get("body", b""))

        await _answer(answering, json.dumps(message).encode(), scope, trio.sleep_forever, keep)
        if said:
            answers.append(json.loads(said))
    return JSONResponse(answers) if answers else Response(status_code=202)


def _refused(code: int, text: str, own: object = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": own, "error": {"code": code, "message": text}}


async def _ask(sdk: Any, api: Api, caller: Caller, name: str, given: dict[str, Any]) -> dict[str, Any]:
    try:
        call = read(*read_tool_call(name, given))
        with trio.fail_after(call.operation.deadline_s):
            return await perform(call, caller, api.parts)
    except Exception as error:  # noqa: BLE001  the boundary where every error becomes an answer
        told = json.loads(bytes(of_error(error).body))
    raise sdk.ToolCallRefused({name: told[name] for name in ("code", "detail", "errors") if name in told})
