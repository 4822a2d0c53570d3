"""The ASGI application: all routes, and around them what holds for each: limits, errors, headers, log lines."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from klaw.actor.failure import error_class, let_go, where
from klaw.api import conversation, files, mcp, metrics, ollama, openai, openapi, page, rags, responses, rest, voice
from klaw.api.problems import of_error, problem
from klaw.api.request_auth import Api, connection_of, prefix_of, refuse_too_fast
from klaw.config.schema import GatewayConfig
from klaw.errors import HttpRefusal
from klaw.gateway.origin_check import parted, written

_POLICY = (
    b"default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; "
    b"form-action 'self'; object-src 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

LINGER_S, LINGER_PIECES = 5.0, 10_000
"""Seconds and pieces in which a client that was answered already may go on sending its body."""

log = structlog.get_logger("klaw.api")


def make_app(api: Api) -> ASGIApp:
    async def healthz(_request: Request) -> Response:
        degraded = bool(api.core.health.problems())
        return JSONResponse({"status": "degraded" if degraded else "ok"})

    described: list[BaseRoute] = [
        *page.login_routes(api),
        *conversation.routes(api),
        *files.routes(api),
        *rags.routes(api),
        *voice.routes(api),
        *rest.routes(api),
        *page.routes(api),
    ]
    routes: list[BaseRoute] = [
        Route("/healthz", healthz, methods=["GET"]),
        *described,
        *openapi.routes(described),
        *metrics.routes(api),
        *openai.routes(api),
        *responses.routes(api),
        *ollama.routes(api),
        *mcp.routes(api),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _unhandled})
    origins = api.services.config.allowed_origins
    if not origins:
        return _Outermost(app, lambda inner: inner, api.services.config)
    cors = partial(
        CORSMiddleware,
        allow_origins=[written(each) for each in origins],
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=["*"],  # every SDK has its own
        allow_private_network=True,
        expose_headers=["X-Klaw-Chat", "X-Klaw-Receipt", "Retry-After", "WWW-Authenticate"],
    )
    return _Outermost(app, cors, api.services.config)


async def _unhandled(_request: Request, error: Exception) -> Response:
    raise error  # to ``_Outermost``


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 404:
        text = "there is nothing here; the API is described at /api/openapi.json, the WebSocket is at /ws"
        return _as_face(request.scope["path"], problem(404, "not_found", text))
    response = of_error(error)
    if response.status_code == 405:  # a path has a route for each method; Starlette names those of one of them
        path = request.scope["path"].removeprefix(prefix_of(request))
        routes = [each for each in request.app.routes if isinstance(each, Route)]
        there = [each for each in routes if each.path == path] or [
            each for each in routes if each.path_regex.match(path)
        ]
        may = {method for route in there for method in route.methods or ()}
        response.headers["allow"] = ", ".join(sorted(may)) or "GET, HEAD"  # of files
    return response


class _Outermost:
    """Limits a connection's requests, makes problems of errors, adds headers to every answer. ``cors`` lets pages of
    allowed origins read an answer, also one that refuses them something."""

    def __init__(self, app: ASGIApp, cors: Callable[[ASGIApp], ASGIApp], config: GatewayConfig) -> None:
        self._app, self._cors, self._config = cors(app), cors, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a WebSocket behind other requests: its place is a connection of its own
            await send({"type": "websocket.close"})
            return
        request = Request(scope)
        connection, headers = connection_of(request), request.headers
        connection.busy = True
        told = headers.get("x-forwarded-prefix") if connection.place.loopback else None
        prefix, path = parted(scope["path"], self._config.http.prefix, told)
        scope["root_path"], scope["path"] = prefix, prefix + path
        if connection.encrypted or headers.get("x-forwarded-proto") == "https":
            scope["scheme"] = "https"
        begun, body = False, _Body(receive)

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *_missing(given, path)]
            if message["type"] == "http.response.body" and not message.get("more_body"):
                with trio.move_on_after(LINGER_S):
                    await body.read_rest(LINGER_PIECES)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(body.read_rest)
                    await send(message)
            else:
                await send(message)

        try:
            await self._answer(scope, body.receive, sending)
        except ClientDisconnect:
            log.info("client_gone")
        except Exception as error:  # noqa: BLE001  the boundary where every error becomes an answer
            response = of_error(error)
            if begun:
                log.error("response_broken_off", error=error_class(error), where=where(error))
                raise ConnectionAbortedError from None
            let_go(error)
            await self._cors(_as_face(path, response))(scope, body.receive, sending)
        finally:
            connection.busy = False

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy before Klaw may see its end elsewhere, and behind it a request of somebody else (RFC 9112, 6.1).
            text = "a request has Content-Length or Transfer-Encoding, not both"
            raise HttpRefusal(400, text, {"Connection": "close"})
        refuse_too_fast(connection_of(Request(scope)).pace.take(trio.current_time()))
        await self._app(scope, receive, send)


class _Body:
    """A request's body. What nobody read of it is read before an answer ends: otherwise the client might never see the
    answer, and hypercorn would wait forever for somebody to take the rest."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._ended = not message.get("more_body", False)  # also of a disconnect
        return message

    async def read_rest(self, at_most: float = math.inf) -> None:
        while not self._ended and at_most > 0:
            await self.receive()
            at_most -= 1


def _as_face(path: str, response: JSONResponse) -> Response:
    of_ollama = path.startswith("/api/") and not path.startswith(("/api/v1/", "/api/openapi"))
    face = openai if path.startswith("/v1/") else ollama if of_ollama else None
    if face is None:
        return response
    headers = {name: value for name, value in response.headers.items() if name in ("retry-after", "www-authenticate")}
    return JSONResponse(face.error_of(response), response.status_code, headers)


def _missing(given: set[bytes], path: str) -> list[tuple[bytes, bytes]]:
    more: list[Any] = [each for each in _HEADERS if each[0] not in given]
    if b"cache-control" not in given and path.startswith(("/api/", "/rags/", "/v1/", mcp.PATH)):
        more.append((b"cache-control", b"no-store"))
    return more
