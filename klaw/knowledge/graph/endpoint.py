"""SPARQL 1.1 endpoints over HTTP: guarded addresses, bounded answers, credentials that go nowhere else.

Whoever adds a source may write an address of the public internet, which is asked without credentials; or the name of an
endpoint of ``kb.endpoints``, whose credentials go to its own address only: what redirects elsewhere is not followed.
"""

import base64
import re
import ssl
from collections.abc import AsyncIterator, Callable, Container, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import urlencode

import attrs
import httpcore2

from klaw.actor.threads import Threads
from klaw.config.document import join_path
from klaw.config.knowledge import EndpointConfig
from klaw.errors import ConfigError, GraphError, ToolRefused
from klaw.guarded_http import (
    BoundedBody,
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
from klaw.knowledge.graph.child import command, read_line, run
from klaw.knowledge.graph.graph import MAX_ANSWER_BYTES, Session
from klaw.knowledge.graph.terms import Answer, read_answer

MAX_REDIRECTS = 3
CONNECT_S = 5.0
IDLE_S = 30.0
"""No byte for this long; queries have a shorter time."""
PARSE_S = 5.0

_ANY_PORT = range(1, 65_536)
_RESULTS = "application/sparql-results+json"
_TRIPLES = {"application/n-triples": "N_TRIPLES", "text/turtle": "TURTLE"}
_CONSTRUCT = re.compile(r"(?:\s|#[^\n]*+|BASE\s*+<[^>]*+>|PREFIX\s[^<]*+<[^>]*+>)*+CONSTRUCT\b", re.IGNORECASE)
"""Without backtracking: the query is anybody's."""
_REDIRECTS = frozenset({301, 302, 307, 308})
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class Web:
    """What endpoints share.

    Args:
        ports: of the public internet that may be connected to.
        resolve, forbidden, tls: see ``klaw.guarded_http``.
        forbidden_to_operator: ``forbidden`` for an endpoint that may be private.
    """

    def __init__(
        self,
        ports: Container[int],
        *,
        resolve: Resolve = resolve_name,
        forbidden: Forbidden = forbidden,
        forbidden_to_operator: Forbidden = forbidden_to_operator,
        tls: Callable[[], ssl.SSLContext] = httpcore2.default_ssl_context,
    ) -> None:
        self.ports = ports
        self.http = GuardedHttp(idle_s=IDLE_S, connect_s=CONNECT_S, resolve=resolve, tls=tls)
        self.forbidden = forbidden
        self.forbidden_to_operator = forbidden_to_operator
        self.threads = Threads("graph answers", 2)


@attrs.frozen
class EndpointGraph:
    """A graph behind an address. See ``Graph``.

    Args:
        web: shared by all of them.
        target: its address.
        headers: of its requests: credentials.
        named: the operator named it: nothing is sent elsewhere.
        private: it may be on this machine or its network.
    """

    web: Web
    target: WebTarget
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    named: bool = False
    private: bool = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """See ``Graph.session``."""
        forbidden = self.web.forbidden_to_operator if self.private else self.web.forbidden
        async with self.web.http.opened(forbidden, keep=True) as connections:
            yield _EndpointSession(self, connections)


def public_endpoint(web: Web, url: str) -> EndpointGraph:
    """An endpoint that anybody may name. Raises GraphError: the address may not be asked."""
    try:
        return EndpointGraph(web, parse(url, web.ports))
    except ToolRefused as error:
        raise GraphError("bad_address", str(error)) from None


def named_endpoint(web: Web, name: str, config: EndpointConfig) -> EndpointGraph:
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
    return EndpointGraph(web, target, headers, named=True, private=config.private)


class _EndpointSession:
    """See ``Session``."""

    indexed = False

    def __init__(self, graph: EndpointGraph, connections: GuardedConnections) -> None:
        self._graph = graph
        self._connections = connections
        self._target = graph.target

    async def ask(self, sparql: str, most: int) -> Answer:
        body = urlencode({"query": sparql}).encode()
        # Only what fits: some servers choose from a list what they cannot write.
        accepted = ", ".join(_TRIPLES) if _CONSTRUCT.match(sparql) else _RESULTS
        for _ in range(MAX_REDIRECTS + 1):
            try:
                answer = await self._post(body, accepted)
            except ExchangeFailed as error:
                raise GraphError("timeout" if error.timed_out else "unreachable", str(error)) from None
            except ToolRefused as error:
                raise GraphError("bad_address", str(error)) from None
            if not isinstance(answer, str):
                return await self._read(*answer, most)
            self._target = self._redirected(answer)
        raise GraphError("refused", f"the endpoint redirects more than {MAX_REDIRECTS} times")

    def _redirected(self, location: str) -> WebTarget:
        graph, here = self._graph, self._target
        try:
            ports = _ANY_PORT if graph.named else graph.web.ports
            target = parse(location, ports, base=here.url, own=graph.private)
        except ToolRefused as error:
            raise GraphError("bad_address", f"the endpoint redirects to what is not asked: {error}") from None
        if graph.named and (target.scheme, target.host, target.port) != (here.scheme, here.host, here.port):
            text = "the endpoint redirects to another server: if that is right, write its address into kb.endpoints"
            raise GraphError("bad_address", text)
        return target

    async def _post(self, body: bytes, accepted: str) -> tuple[bytes, str] | str:
        """The answer and its media type, or where it redirects to."""
        headers = {
            "Accept": accepted,
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

    async def _read(self, body: bytes, kind: str, most: int) -> Answer:
        if kind in (_RESULTS, "application/json"):
            return await self._graph.web.threads.run(read_answer, body, most)
        if kind in _TRIPLES:
            return await self._graph.web.threads.run(read_line, await _triples(body, _TRIPLES[kind]), most)
        raise GraphError("malformed", "the answer is no SPARQL result: it has another content type")


def _check(response: GuardedResponse) -> None:
    """Whether an answer is read. Its own words are shown to nobody: they are anybody's."""
    status = response.status
    if status == HTTPStatus.BAD_REQUEST:
        raise GraphError("bad_query", "the endpoint does not accept the query (HTTP status 400)")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise GraphError("refused", f"the endpoint wants other credentials (HTTP status {status})")
    if status in _BUSY:
        raise GraphError("busy", f"the endpoint has too much to do (HTTP status {status})")
    if status != HTTPStatus.OK:
        raise GraphError("refused", f"the endpoint answers with HTTP status {status}")
    if response.encoding != "identity":
        raise GraphError("malformed", "the answer is packed though that was not asked for")


async def _triples(body: bytes, form: str) -> bytes:
    """Triples as SPARQL results. In a child process: a parser of foreign bytes is nothing to have in this one."""
    return await run(command("triples", form), body, PARSE_S) or b'{"error": "malformed"}'
