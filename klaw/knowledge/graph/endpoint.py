"""SPARQL 1.1 endpoints over HTTP: guarded addresses, bounded answers, credentials that go nowhere else. Whoever adds a
source may write an address of the public internet, which is asked without credentials; or the name of an endpoint of
``kb.endpoints``, whose credentials go to its own address only: what redirects elsewhere is not followed."""

import base64
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import urlencode

import attrs
import httpcore2

from klaw.actor.threads import read_input
from klaw.bounded_body import BoundedBody
from klaw.config.document import join_path
from klaw.config.tools import EndpointConfig
from klaw.errors import ConfigError, GraphError, ToolRefused
from klaw.guarded_http import (
    ExchangeFailed,
    Forbidden,
    GuardedConnections,
    GuardedHttp,
    GuardedResponse,
    Resolve,
    WebTarget,
    forbidden,
    forbidden_to_operator,
    parse,
    resolve_name,
)
from klaw.knowledge.graph.lookup import MAX_ANSWER_BYTES, GraphSession
from klaw.knowledge.graph.sparql import Row, read_answer

MAX_REDIRECTS = 3
CONNECT_S, IDLE_S = 5.0, 30.0

_ANY_PORT = range(1, 65_536)
_RESULTS = "application/sparql-results+json"
_REDIRECTS = frozenset({301, 302, 307, 308})
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class EndpointNetwork:
    """The guarded network that all endpoints are reached through: ``ports`` of the public internet, and what says why
    the address of a public endpoint, or of one that may be private, is refused."""

    def __init__(
        self,
        ports: Container[int],
        *,
        resolve: Resolve = resolve_name,
        forbidden: Forbidden = forbidden,
        forbidden_to_operator: Forbidden = forbidden_to_operator,
    ) -> None:
        self.ports = ports
        self.http = GuardedHttp(idle_s=IDLE_S, connect_s=CONNECT_S, resolve=resolve, tls=httpcore2.default_ssl_context)
        self.forbidden = forbidden
        self.forbidden_to_operator = forbidden_to_operator


@attrs.frozen
class EndpointGraph:
    network: EndpointNetwork
    target: WebTarget
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    named: bool = False
    """It stands in ``kb.endpoints``; queries go to such endpoints only."""
    private: bool = False
    """On this machine or its network."""

    @asynccontextmanager
    async def session(self) -> AsyncIterator[GraphSession]:
        forbidden = self.network.forbidden_to_operator if self.private else self.network.forbidden
        async with self.network.http.opened(forbidden, keep=True) as connections:
            yield _EndpointSession(self, connections)


def public_endpoint(network: EndpointNetwork, url: str) -> EndpointGraph:
    """An endpoint that anybody may name. Raises GraphError: the address may not be asked."""
    try:
        return EndpointGraph(network, parse(url, network.ports))
    except ToolRefused as error:
        raise GraphError("bad_address", str(error)) from None


def named_endpoint(network: EndpointNetwork, name: str, config: EndpointConfig) -> EndpointGraph:
    """An endpoint of ``kb.endpoints``. Raises GraphError: it cannot be used as it is configured."""
    path = join_path("kb.endpoints", name)
    try:
        headers = {each: secret.reveal(join_path(f"{path}.headers", each)) for each, secret in config.headers.items()}
        if config.user is not None and config.password is not None:
            pair = f"{config.user}:{config.password.reveal(f'{path}.password')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        target = parse(config.url, _ANY_PORT, own=config.private)
    except (ConfigError, ToolRefused) as error:
        raise GraphError("bad_address", f"{path}: {error}") from None
    return EndpointGraph(network, target, headers, named=True, private=config.private)


class _EndpointSession:
    indexed = False

    def __init__(self, graph: EndpointGraph, connections: GuardedConnections) -> None:
        self._graph = graph
        self._connections = connections
        self._target = graph.target

    async def ask(self, sparql: str, most: int) -> list[Row]:
        body = urlencode({"query": sparql}).encode()
        for _ in range(MAX_REDIRECTS + 1):
            try:
                answer = await self._post(body)
            except ExchangeFailed as error:
                raise GraphError("timeout" if error.timed_out else "unreachable", str(error)) from None
            except ToolRefused as error:
                raise GraphError("bad_address", str(error)) from None
            if not isinstance(answer, str):
                content, kind = answer
                if kind not in (_RESULTS, "application/json"):
                    raise GraphError("malformed", "the answer is not a SPARQL result: it has another content type")
                return await read_input(len(content), read_answer, content, most)
            self._target = self._redirected(answer)
        raise GraphError("refused", f"the endpoint redirects more than {MAX_REDIRECTS} times")

    def _redirected(self, location: str) -> WebTarget:
        graph, here = self._graph, self._target
        try:
            ports = _ANY_PORT if graph.named else graph.network.ports
            target = parse(location, ports, base=here.url, own=graph.private)
        except ToolRefused as error:
            raise GraphError("bad_address", f"the endpoint redirects to a forbidden address: {error}") from None
        if graph.named and (target.scheme, target.host, target.port) != (here.scheme, here.host, here.port):
            text = "the endpoint redirects to another server: if that is right, write its address into kb.endpoints"
            raise GraphError("bad_address", text)
        return target

    async def _post(self, body: bytes) -> tuple[bytes, str] | str:
        """The answer and its media type, or where it redirects to."""
        headers = {
            "Accept": _RESULTS,
            "Accept-Encoding": "identity",
            "Content-Type": "application/x-www-form-urlencoded",
            **self._graph.headers,
        }
        async with self._connections.exchange("POST", self._target, headers, body) as response:
            if response.status in _REDIRECTS and "location" in response.headers:
                return response.headers["location"]
            _check(response)
            answer = BoundedBody(MAX_ANSWER_BYTES)
            if not await answer.read(response.chunks):
                raise GraphError("too_large", f"the answer is longer than {MAX_ANSWER_BYTES // 1_000_000} MB")
            return bytes(answer.data), response.content_type


def _check(response: GuardedResponse) -> None:
    """Raise GraphError for an answer that is not read. Its own text is not trusted and shown to nobody."""
    status = response.status
    if status == HTTPStatus.BAD_REQUEST:
        raise GraphError("bad_query", "the endpoint does not accept the query (HTTP status 400)")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise GraphError("refused", f"the endpoint does not accept the credentials (HTTP status {status})")
    if status in _BUSY:
        raise GraphError("busy", f"the endpoint is busy (HTTP status {status})")
    if status != HTTPStatus.OK:
        raise GraphError("refused", f"the endpoint answers with HTTP status {status}")
    if response.encoding != "identity":
        raise GraphError("malformed", "the answer is compressed, which was not requested")
