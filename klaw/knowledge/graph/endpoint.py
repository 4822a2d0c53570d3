"""SPARQL 1.1 endpoints over HTTP: guarded addresses, bounded answers, credentials that go nowhere else.

Whoever adds a source may write an address of the public internet, which is asked without credentials; or the name of an
endpoint of ``kb.endpoints``, whose credentials go to its own address only: what redirects elsewhere is not followed.
"""

import base64
import ssl
from collections.abc import AsyncIterator, Callable, Container, Mapping
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from urllib.parse import urlencode

import attrs
import httpcore2

from klaw import __version__
from klaw.actor.threads import Threads
from klaw.config.document import join_path
from klaw.config.knowledge import EndpointConfig
from klaw.errors import ConfigError, GraphError, ToolRefused
from klaw.knowledge.graph.graph import MAX_ANSWER_BYTES, GraphSession
from klaw.knowledge.graph.terms import ResultRows, read_answer
from klaw.toolbox.web.address import (
    Forbidden,
    GuardedBackend,
    Resolve,
    WebTarget,
    forbidden,
    forbidden_to_operator,
    parse,
    resolve_name,
)

MAX_REDIRECTS = 3
CONNECT_S = 5.0
IDLE_S = 30.0
"""No byte for this long; queries have a shorter time."""

_ANY_PORT = range(1, 65_536)
_RESULTS = "application/sparql-results+json"
_REDIRECTS = frozenset({301, 302, 307, 308})
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class EndpointNetwork:
    """The guarded network that all endpoints are reached through.

    Args:
        ports: of the public internet that may be used.
        resolve: names to addresses.
        forbidden: why a public endpoint's address is refused.
        forbidden_to_operator: the same for endpoints that may be private.
        tls: makes the TLS settings, once.
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
        self.public = GuardedBackend(resolve, forbidden)
        self.private = GuardedBackend(resolve, forbidden_to_operator)
        self.threads = Threads("graph answers", 2)
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None

    async def tls(self) -> ssl.SSLContext:
        """The TLS settings."""
        if self._tls is None:
            self._tls = await self.threads.run(self._make_tls)
        return self._tls


@attrs.frozen
class EndpointGraph:
    """A graph behind an address. See ``Graph``.

    Args:
        headers: with credentials.
        named: in ``kb.endpoints``: nothing is sent elsewhere.
        private: it may be on this machine or its network.
    """

    network: EndpointNetwork
    target: WebTarget
    headers: Mapping[bytes | str, bytes | str] = attrs.field(factory=dict, repr=False)
    named: bool = False
    private: bool = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[GraphSession]:
        """See ``Graph.session``."""
        backend = self.network.private if self.private else self.network.public
        async with httpcore2.AsyncConnectionPool(ssl_context=await self.network.tls(), network_backend=backend) as pool:
            yield _EndpointSession(self, pool)


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
        headers: dict[bytes | str, bytes | str] = {
            each: secret.reveal(join_path(f"{path}.headers", each)) for each, secret in config.headers.items()
        }
        if config.user is not None and config.password is not None:
            pair = f"{config.user}:{config.password.reveal(f'{path}.password')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        target = parse(config.url, _ANY_PORT, own=config.private)
    except (ConfigError, ToolRefused) as error:
        raise GraphError("bad_address", f"{path}: {error}") from None
    return EndpointGraph(network, target, headers, named=True, private=config.private)


class _EndpointSession:
    """See ``Session``."""

    indexed = False

    def __init__(self, graph: EndpointGraph, pool: httpcore2.AsyncConnectionPool) -> None:
        self._graph = graph
        self._pool = pool
        self._target = graph.target

    async def ask(self, sparql: str, most: int) -> ResultRows:
        body = urlencode({"query": sparql}).encode()
        for _ in range(MAX_REDIRECTS + 1):
            try:
                answer = await self._post(body)
            except ToolRefused as error:
                raise GraphError("bad_address", str(error)) from None
            if not isinstance(answer, str):
                content, kind = answer
                if kind not in (_RESULTS, "application/json"):
                    raise GraphError("malformed", "the answer is not a SPARQL result: it has another content type")
                return await self._graph.network.threads.run(read_answer, content, most)
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
        target = self._target
        host = f"[{target.host}]" if ":" in target.host else target.host
        url = httpcore2.URL(scheme=target.scheme, host=host, port=target.port, target=target.path)
        headers: Mapping[bytes | str, bytes | str] = {
            "User-Agent": f"klaw/{__version__}",
            "Accept": _RESULTS,
            "Accept-Encoding": "identity",
            "Content-Type": "application/x-www-form-urlencoded",
            **self._graph.headers,
        }
        timeouts = {"connect": CONNECT_S, "read": IDLE_S, "write": IDLE_S, "pool": IDLE_S}
        try:
            async with self._pool.stream(
                "POST", url, headers=headers, content=body, extensions={"timeout": timeouts}
            ) as response:
                fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECTS and "location" in fields:
                    return fields["location"]
                _check(response.status, fields)
                return await _body(response), fields.get("content-type", "").partition(";")[0].strip().lower()
        except httpcore2.ConnectTimeout:
            raise GraphError("unreachable", "the endpoint cannot be reached: it does not answer") from None
        except httpcore2.TimeoutException:
            raise GraphError("timeout", f"the endpoint was silent for {IDLE_S:g} s") from None
        except httpcore2.ConnectError:
            text = "the endpoint cannot be reached, or its certificate is not valid"
            raise GraphError("unreachable", text) from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol):
            # Not "from error": its text may quote a header.
            raise GraphError("unreachable", "the connection broke, or the endpoint does not speak HTTP") from None


def _check(status: int, headers: Mapping[str, str]) -> None:
    """Raise GraphError for an answer that is not read. Its own text is not trusted and shown to nobody."""
    if status == HTTPStatus.BAD_REQUEST:
        raise GraphError("bad_query", "the endpoint does not accept the query (HTTP status 400)")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise GraphError("refused", f"the endpoint does not accept the credentials (HTTP status {status})")
    if status in _BUSY:
        raise GraphError("busy", f"the endpoint is busy (HTTP status {status})")
    if status != HTTPStatus.OK:
        raise GraphError("refused", f"the endpoint answers with HTTP status {status}")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise GraphError("malformed", "the answer is compressed, which was not requested")


async def _body(response: httpcore2.Response) -> bytes:
    body = bytearray()
    async with aclosing(response.aiter_stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise GraphError("too_large", f"the answer is longer than {MAX_ANSWER_BYTES // 1_000_000} MB")
    return bytes(body)
