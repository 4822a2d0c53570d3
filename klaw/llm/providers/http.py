"""A provider over HTTP, whatever API it speaks (see ``klaw.llm.providers.dialect``).

Here httpx2's exceptions become Klaw's. Of a provider's words, an error's text and a log line hold only status codes,
short machine-readable codes, and those that can hold nobody's message (see ``klaw.llm.providers.refusals``).
"""

import datetime as dt
import email.utils
import ipaddress
import json
import math
import os
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import attrs
import httpx2
import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.clock import new_id
from klaw.actor.threads import Threads
from klaw.bounded_body import BoundedBody
from klaw.config.document import join_path
from klaw.config.llm import LOCAL_PROVIDER
from klaw.llm.errors import (
    ContextTooLong,
    OverQuota,
    ProviderError,
    ProviderMalformed,
    ProviderNetworkError,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
)
from klaw.llm.providers.adapt import MAX_TRIES, Habits, is_about_length, learned
from klaw.llm.providers.dialect import JSON, MAX_REPLY_BYTES, MAX_SOUND_BYTES, Dialect, encode, parse
from klaw.llm.providers.ollama import OllamaDialect
from klaw.llm.providers.refusals import loggable, masked, readable, refused, shown
from klaw.llm.providers.response import AnswerReader
from klaw.llm.types import Completion, OnDelta, Request

CONNECT_TIMEOUT_S = 10.0
CLOSE_BUDGET_S = 2.0
ERROR_BODY_BUDGET_S = 5.0
MAX_ERROR_BODY_BYTES = 64 * 1024
MAX_CAUSES = 30
MAX_REMEMBERED = 256
IDLE_S = 600.0
"""Models that think in silence take minutes; their servers send comments meanwhile."""

BACKOFF = Backoff(1.0, 8.0)
MAX_RETRY_AFTER_S = 30.0
"""A longer pause is not waited for: somebody looks at the screen."""

T = TypeVar("T")
Sent: TypeAlias = bytes | dict[str, Any]
ReadReply: TypeAlias = Callable[[bytes, str], T]
ReadObject: TypeAlias = Callable[[Mapping[str, Any]], T]

log = structlog.get_logger("klaw.llm")


@attrs.frozen(kw_only=True)
class HttpSettings:
    name: str
    base_url: str | None
    """Usually ending in ``/v1``; None for the dialect's own."""
    api_key: str | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    extra_body: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    timeout_s: float = 120.0
    """No byte for this long is a time-out; no content for ``idle_s`` is one, too."""
    idle_s: float = IDLE_S
    max_s: float = 1800.0
    """For one attempt: a stream of a byte a second would hold an LLM slot for ever."""
    max_retries: int = 2
    """Before the first delta."""


@attrs.define(eq=False, repr=False)
class HttpProvider:
    """An address of a provider, for chats (``stream``) or for other models (``post``)."""

    _settings: HttpSettings
    _dialect: Dialect
    _url: str = attrs.Factory(lambda self: self._dialect.url(self._settings.base_url), takes_self=True)
    _chance: Callable[[], float] = attrs.field(default=random.random, kw_only=True)
    """Uniform in [0, 1), for the pauses before retries."""
    _client: httpx2.AsyncClient | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _habits: MutableMapping[str, Habits] = attrs.field(factory=dict, kw_only=True)
    """What each model was found to take."""
    _learned: Callable[[], None] = attrs.field(default=lambda: None, kw_only=True)
    """Called when that has changed."""

    def is_like(self, other: "HttpProvider") -> bool:
        """Whether both ask the same address with the same settings."""
        own, its = ((each._settings, each._url, type(each._dialect)) for each in (self, other))
        return own == its

    @property
    def adapted(self) -> Mapping[str, tuple[str, ...]]:
        return {model: told for model, habits in self._habits.items() if (told := habits.told())}

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """See ``Provider.stream``. What the model refuses is left out, and remembered when it answers then."""
        known = habits = self._habits.get(request.model, Habits())
        failed = 0
        while True:
            trial = _Trial(request, habits)
            try:
                completion = await self._repeating(request.model, partial(self._ask, trial, on_delta), trial.has_begun)
                break
            except ProviderError:
                failed += 1
                if trial.next is None or trial.has_begun() or failed == MAX_TRIES:
                    raise
                habits = trial.next
        unopened = trial.answer is not None and trial.answer.assembly.splitter.unopened
        if unopened or habits.unopened is None:
            habits = attrs.evolve(habits, unopened=unopened or (False if habits.holds(request.model) else None))
        if habits != known:
            log.info("llm_adapted", provider=self._settings.name, model=request.model, kinds=habits.told())
            if len(self._habits) >= MAX_REMEMBERED:
                self._habits.clear()
            self._habits[request.model] = attrs.evolve(habits, at="")
            self._learned()
        name = f"{self._settings.name}/{request.model}"
        echo = completion.echo and attrs.evolve(completion.echo, model=name)
        return attrs.evolve(completion, model=name, echo=echo, adapted=habits.told())

    async def post(self, model: str, members: Mapping[str, Any], read: ReadObject[T], within_s: float) -> T:
        return await self.exchange(model, {"model": model, **members}, partial(_read, read=read), within_s)

    async def exchange(self, model: str, sent: Sent, read: ReadReply[T], within_s: float, **headers: str) -> T:
        """Send JSON, or bytes of any type; ``read`` gets the answer's bytes and media type, in a thread."""
        body = sent if isinstance(sent, bytes) else encode(sent, self._settings.extra_body)
        with trio.move_on_after(within_s):
            return await self._repeating(model, lambda: self._exchange(body, read, headers))
        late = ProviderTimeout(f"the LLM provider did not answer within {within_s:.3g} s")
        self._explain(late, model)
        raise late

    async def aclose(self) -> None:
        """Later calls raise ProviderNetworkError."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with trio.move_on_after(CLOSE_BUDGET_S, shield=True):
                await client.aclose()

    async def _repeating(
        self, model: str, attempt: Callable[[], Awaitable[T]], begun: Callable[[], bool] = lambda: False
    ) -> T:
        failed = 0
        while True:
            try:
                return await attempt()
            except ProviderError as error:
                self._explain(error, model)
                log.warning(
                    "llm_call_failed",
                    provider=self._settings.name,
                    model=model,
                    attempt=failed,
                    code=error.code,
                    status=getattr(error, "status", None),
                    reason=error.known_words or None,
                )
                pause = pause_before_retry(error, failed, self._chance())
                if begun() or pause is None or failed >= self._settings.max_retries:
                    raise
            failed += 1
            await trio.sleep(pause)

    async def _accepted(self, response: httpx2.Response) -> str:
        """The type of an answer that can be read. Raises ProviderError for any other."""
        if response.status_code != 200:
            raise await refusal(response)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise ProviderMalformed("the LLM provider compressed its answer, which was not requested")
        return str(response.headers.get("content-type", "").partition(";")[0].strip().lower())

    @asynccontextmanager
    async def _response(self, body: bytes, url: str, **headers: str) -> AsyncIterator[httpx2.Response]:
        """Open the response; translate every exception of the library, in the body too."""
        with translated(self._settings.timeout_s):
            async with self._connected().stream("POST", url, content=body, headers=headers) as response:
                yield response

    def _connected(self) -> httpx2.AsyncClient:
        if self._closed:
            raise ProviderNetworkError("the LLM provider's client is closed")
        if self._client is None:
            settings = self._settings
            headers = {
                "content-type": JSON,
                "accept": "text/event-stream, application/json",
                **self._dialect.headers(settings.api_key),
                **settings.headers,
            }
            self._client = client_of(self._url, headers, settings.timeout_s)
        return self._client

    def _explain(self, error: ProviderError, model: str) -> None:
        """Add whose error it is and what to look at, and hide secrets in the provider's words."""
        settings = self._settings
        secrets = [*filter(None, (settings.api_key, *settings.headers.values()))]
        error.said = shown(error.said, secrets)
        error.known_words = loggable(error.said)
        if isinstance(error, ProviderRefused):  # its text has the provider's code in it
            error.args = (masked(error.args[0], secrets), *error.args[1:])
        error.origin = f"{settings.name}/{model}"
        if settings.name == LOCAL_PROVIDER:  # its address and key are Klaw's own affair
            return
        error.origin += f" at {settings.base_url or self._url}"
        keys = join_path("providers", settings.name)
        if isinstance(error, ProviderRefused) and error.status in (401, 403):
            error.hint = f"is {keys}.apiKey right?" if settings.api_key else f"{keys}.apiKey is not set"
        elif isinstance(error, ProviderRefused) and error.status == 404:
            error.hint = f"are the model's name and {keys}.baseUrl right?"
        elif isinstance(error, ProviderUnreachable):
            error.hint = f"is it running, and is {keys}.baseUrl right?"

    async def _ask(self, trial: "_Trial", on_delta: OnDelta) -> Completion:
        request, own = trial.habits.fitted(trial.request), trial.habits.members(trial.request)
        dialect: Dialect = self._dialect if request.context_tokens is None else OllamaDialect()
        body = dialect.body(request, {**own, **self._settings.extra_body})
        assembly = dialect.assembly(new_id)
        assembly.splitter.holds = trial.habits.holds(request.model)
        trial.answer = AnswerReader(assembly, on_delta, self._settings.idle_s)
        try:
            url = self._url if request.context_tokens is None else dialect.url(self._settings.base_url)
            return await self._attempt(body, trial.answer, url)
        except ProviderRefused as error:
            too_long = isinstance(error, ContextTooLong) and not is_about_length(error.said)
            if not too_long and not isinstance(error, OverQuota | RateLimited):
                fields = frozenset(json.loads(body)) - self._settings.extra_body.keys() - request.sampling.keys()
                said = f"{error.args[0]} {error.param} {error.said}"
                trial.next = learned(trial.habits, trial.request, status=error.status, text=said, fields=fields)
                if trial.next is not None:
                    error.retryable = False
            raise

    async def _attempt(self, body: bytes, answer: AnswerReader, url: str) -> Completion:
        with trio.move_on_after(self._settings.max_s):
            async with self._response(body, url) as response:
                content_type = await self._accepted(response)
                if content_type == "text/event-stream":
                    await answer.read_events(response)
                elif content_type == "application/x-ndjson":
                    await answer.read_lines(response)
                elif content_type == JSON:
                    await answer.read_whole(response)
                else:
                    raise ProviderMalformed("the LLM provider sent no event stream; is its baseUrl right?")
            return answer.completion()
        raise ProviderTimeout(f"the LLM provider's answer was not complete after {self._settings.max_s:g} s")

    async def _exchange(self, body: bytes, read: ReadReply[T], headers: Mapping[str, str]) -> T:
        async with self._response(body, self._url, **headers) as response:
            media_type = await self._accepted(response)
            most = MAX_REPLY_BYTES if media_type == JSON else MAX_SOUND_BYTES
            whole = BoundedBody(most)
            if not await whole.read(response.aiter_raw()):
                raise ProviderMalformed(f"the LLM provider's answer is longer than {most} bytes")
        return await _READING.run(read, bytes(whole.data), media_type, abandon=True)


@attrs.define
class _Trial:
    """One form of a request; ``next`` is the one to try after a refusal."""

    request: Request
    habits: Habits
    answer: AnswerReader | None = None
    next: Habits | None = None

    def has_begun(self) -> bool:
        return self.answer is not None and self.answer.begun


_READING = Threads("answers", 2)
"""Megabytes of numbers would hold up the event loop."""


def _read(body: bytes, media_type: str, read: ReadObject[T]) -> T:
    if media_type != JSON:
        raise ProviderMalformed("the LLM provider sent no JSON; is its baseUrl right?")
    answer = parse(body.decode("utf-8", "replace"))
    if not isinstance(answer, dict):
        raise ProviderMalformed("the LLM provider's answer is not a JSON object")
    return read(answer)


def client_of(url: str, headers: Mapping[str, str], timeout_s: float) -> httpx2.AsyncClient:
    """A client for one address."""
    secure = urlsplit(url).scheme == "https"
    return httpx2.AsyncClient(
        # Decompression would be one more generator in the chain that Answer has to unwind, for a few bytes.
        headers={"accept-encoding": "identity", "user-agent": "klaw", **headers},
        timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
        # A plain http address needs no certificates, whose loading takes a tenth of a second.
        verify=secure,
        # llama.cpp closes a connection just after a stream without saying so, and every other reuse would fail.
        # Where no TLS handshake is saved, reuse is worth nothing anyway.
        limits=httpx2.Limits(max_keepalive_connections=None if secure else 0),
        # A proxy of the environment is for the internet; a model on this machine is not behind it.
        trust_env=not _is_loopback(url),
    )


@contextmanager
def translated(timeout_s: float) -> Iterator[None]:
    """The exceptions of the HTTP library as Klaw's. ``timeout_s`` is what the client has."""
    try:
        yield
    except httpx2.ConnectTimeout as exc:
        raise ProviderUnreachable("the LLM provider cannot be reached: it does not answer") from exc
    except httpx2.TimeoutException as exc:
        raise ProviderTimeout(f"the LLM provider sent nothing for {timeout_s:g} s") from exc
    except httpx2.ConnectError as exc:
        raise ProviderUnreachable(f"the LLM provider cannot be reached{connection_failure(exc)}") from exc
    except httpx2.LocalProtocolError:
        # Not "from exc": its text quotes the header, which may be the key.
        raise ProviderNetworkError("the LLM provider's headers or key cannot be sent") from None
    except httpx2.TransportError as exc:
        raise ProviderNetworkError("the connection to the LLM provider broke") from exc
    except httpx2.InvalidURL as exc:
        raise ProviderUnreachable("the LLM provider's baseUrl is not usable") from exc


async def refusal(response: httpx2.Response) -> ProviderError:
    """The error for an answer with an error status, with what its body says."""
    body = BoundedBody(MAX_ERROR_BODY_BYTES)
    with trio.move_on_after(ERROR_BODY_BUDGET_S):
        await body.read(response.aiter_raw())
    after_s = parse_retry_after(response.headers.get("retry-after"), time.time())
    return refused(response.status_code, readable(bytes(body.data)), after_s)


def connection_failure(error: BaseException) -> str:
    """The system's words on a connection that could not be made, behind a colon; nothing if it has none."""
    waiting, seen = [error], 0
    while waiting and seen < MAX_CAUSES:
        cause, seen = waiting.pop(0), seen + 1
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f": its certificate is not accepted, {cause.verify_message}"
        if isinstance(cause, socket.gaierror):
            return ": there is no such host, or no name service"
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
            return f": {os.strerror(cause.errno)}"
        waiting += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        waiting += filter(None, (cause.__cause__, cause.__context__))
    return ""


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def pause_before_retry(error: ProviderError, attempt: int, chance: float) -> float | None:
    """Seconds to wait; None when a repetition is pointless. ``attempt`` counts from 0; ``chance``: [0, 1)."""
    if not error.retryable or not isinstance(error, ProviderRefused | ProviderTimeout | ProviderNetworkError):
        return None
    # Full jitter: callers that failed together spread over the whole pause, and on average over half of it.
    pause = BACKOFF.pause_s(attempt + 1) * chance
    asked = error.retry_after_s if isinstance(error, ProviderRefused) else None
    if asked is not None:
        return None if asked > MAX_RETRY_AFTER_S else asked + pause
    return pause


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Read a ``Retry-After`` header: seconds or an HTTP date. None when absent or unreadable."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).timestamp() - now
    return max(0.0, seconds) if math.isfinite(seconds) else None
