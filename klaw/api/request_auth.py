"""Who asks over HTTP: the token or the browser's login of a request, and how much that user may ask."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import attrs
import trio
from starlette.requests import Request

from klaw.actor.threads import read_input
from klaw.convert import FRAMES, MOST_VALUES, Converter, read_json
from klaw.core import Core
from klaw.domain.names import LOCAL_USER, ChatId, UserId
from klaw.errors import HttpRefusal
from klaw.gateway.connection_limits import Connection
from klaw.gateway.origin_check import Endpoints, admit, passed_on, written
from klaw.gateway.services import Services
from klaw.gateway.tokens import Grant
from klaw.operations.handler import OPERATOR, Caller, Parts
from klaw.wire.frames import MessageId

QUERY = Converter(forbid_unknown=True, lenient=True)
"""Reads what stands in a URL, where all values are texts."""
T = TypeVar("T")
OPERATOR_BODY_BYTES = 1 << 20
"""The commands of this machine send so much whatever the configuration says."""
BODY_S = 60.0
"""A body must have come within this time."""


def refuse_too_fast(wait_s: float) -> None:
    """Raises HttpRefusal, unless there is nothing to wait for."""
    if wait_s > 0:
        wait_s = math.ceil(wait_s)
        raise HttpRefusal(429, f"too many requests: ask again in {wait_s} s", {"Retry-After": str(wait_s)})


@attrs.frozen(kw_only=True)
class Api:
    core: Core
    services: Services
    parts: Parts
    placing: dict[UserId, trio.Lock] = attrs.field(factory=partial(defaultdict, trio.Lock), init=False)
    """By user: a request that finds the chat of a transcript stores its question before the next one looks."""
    going_on: WeakValueDictionary[ChatId, trio.Lock] = attrs.field(factory=WeakValueDictionary, init=False)
    """By chat: what goes on from a response waits for another request that does."""

    def grant(self, request: Request, *, body_counts: bool = True, mcp: bool = False) -> Grant:
        """Who asks. ``body_counts``: the whole body is taken from what the user may send before it has come. ``mcp``:
        as for ``Authenticator.grant``. Raises HttpRefusal: nobody who may; the origin or the host is not allowed; too
        many connections, or too much asked."""
        if connection_of(request).operator:
            return Grant(user=LOCAL_USER, token=None, operator=True)
        headers, place = headers_of(request), place_of(request)
        if place.loopback and not self.services.auth.has_tokens:
            # Some programs always send a token; it means nothing while the server has none.
            headers.pop("authorization", None)
        grant = admit(headers, self.services.auth, self.services.config.page_origins, place, mcp=mcp)
        if grant is None:
            raise HttpRefusal(401, "a token is needed: Authorization: Bearer TOKEN (klaw token add), or log in")
        if grant.token is None and not place.is_own(headers.get("host")):
            raise HttpRefusal(403, "this host name is not the server's; ask by its address")
        length = headers.get("content-length", "0") if body_counts else "0"
        self._count(connection_of(request), grant.user, length)
        return grant

    def caller(self, request: Request, *, body_counts: bool = True) -> Caller:
        grant = self.grant(request, body_counts=body_counts)
        if connection_of(request).operator:
            return OPERATOR
        return Caller(user=grant.user, operator=grant.operator, token=grant.token)

    async def body(self, request: Request, at_most: int | None = None) -> bytes:
        """A request's body; if its length is not told, each piece counts as a frame. Raises HttpRefusal: too long, or
        too slow."""
        most, body = at_most or self.services.config.http.max_body_bytes, bytearray()
        if connection_of(request).operator:
            most = max(most, OPERATOR_BODY_BYTES)
        counted = "content-length" in request.headers
        setting = " (gateway.http.maxBodyBytes)" if at_most is None else ""
        too_long = HttpRefusal(413, f"a body has at most {most} bytes here{setting}")
        if int(request.headers.get("content-length", "0")) > most:  # h11 has read it as a number
            raise too_long
        allowance = None if counted else connection_of(request).allowance
        with trio.move_on_after(BODY_S) as reading:
            async with aclosing(request.stream()) as stream:
                async for part in stream:
                    body += part
                    while allowance and (wait_s := allowance.take(len(part), trio.current_time())) > 0:  # noqa: ASYNC110
                        await trio.sleep(wait_s)
                    if len(body) > most:
                        raise too_long
        if reading.cancelled_caught:
            raise HttpRefusal(408, f"the body did not come within {BODY_S:g} s")
        return bytes(body)

    async def json(self, request: Request, read: Callable[[dict[str, Any]], T], at_most: int | None = None) -> T:
        """What ``read`` makes of a request's body, a JSON object; without a body an empty one. A large one is read in a
        thread. ``at_most``: bytes; ``gateway.http.maxBodyBytes`` when left out. Raises HttpRefusal: it is not a JSON
        object, too long or too slow; and what ``read`` raised."""
        body = await self.body(request, at_most)
        return await read_input(len(body), lambda: read(_object(body)))

    def _count(self, connection: Connection, user: UserId, length: str) -> None:
        if connection.user != user or connection.allowance is None:
            connection.allowance = connection.log_in(user)
            if connection.allowance is None:
                text = "you have too many connections, or the server has; try again later"
                raise HttpRefusal(503, text, {"Retry-After": "1"})
        size = int(length) if length.isdecimal() and len(length) < 16 else 0
        refuse_too_fast(connection.allowance.take(size, trio.current_time()))


def connection_of(request: Request) -> Connection:
    found: Connection = request.scope["state"]["connection"]
    return found


def prefix_of(request: Request) -> str:
    """The path below which the one who asks sees Klaw, such as ``/klaw``; usually empty."""
    found: str = request.scope.get("app_root_path", request.scope["root_path"])
    return found


def address_of(request: Request, api: Api) -> str:
    """Where whoever asks reaches Klaw, such as ``https://klaw.example.org``. Raises HttpRefusal: no usable host."""
    if (public := api.services.config.http.public_url) is not None:
        return public.rstrip("/")
    return written(f"{request.url.scheme}://{request.headers.get('host', '')}") + prefix_of(request)


def headers_of(request: Request) -> dict[str, str]:
    """The headers; the first of repeated ones counts, as in ``gateway.handshake``."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found.setdefault(name, value)
    return found


def message_id(headers: Mapping[str, str], api: Api) -> str:
    """The id of a message that is sent. Raises ProtocolError: ``bad_id``."""
    given = headers.get("idempotency-key")
    return api.core.new_id() if given is None else FRAMES.read(given, MessageId)


def place_of(request: Request) -> Endpoints:
    """Where a request comes from; what a proxy on this machine passes on is not from this machine."""
    place = connection_of(request).place
    return attrs.evolve(place, loopback=False) if passed_on(headers_of(request)) else place


def _object(body: bytes) -> dict[str, Any]:
    try:
        tree = read_json(body) if body.strip() else {}
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise HttpRefusal(400, f"the body is a JSON object in UTF-8, of at most {MOST_VALUES} values")
    return tree
