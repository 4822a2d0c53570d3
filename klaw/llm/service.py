"""A configured provider, made when it is first asked, since its key may be in a file, and paused when it keeps failing.

The breaker: closed, calls go through. Open, they are refused until a time that grows with every failed try. Half-open,
one call goes through, and its outcome decides.
"""

import enum
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.threads import Threads
from klaw.errors import ConfigError
from klaw.llm.errors import (
    ContextTooLong,
    ProviderError,
    ProviderNetworkError,
    ProviderNotSetUp,
    ProviderPaused,
    ProviderRefused,
    ProviderTimeout,
)
from klaw.llm.providers.http import HttpProvider
from klaw.llm.types import Completion, OnDelta, Request

FAILURES_TO_OPEN = 3
BREAK = Backoff(10.0, 300.0)


class BreakerState(enum.StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Who is admitted gets the number of the state, and hands it in with the outcome: a late one does not count."""

    def __init__(self) -> None:
        self.failures = self._openings = self._number = 0
        self._until = 0.0
        self._tries = False

    @property
    def state(self) -> BreakerState:
        if not self._openings:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._tries else BreakerState.OPEN

    def admit(self, now: float) -> int | None:
        """Ask to make a call. None: not now. Else one of the methods below must be called exactly once."""
        if self.state is BreakerState.OPEN and now >= self._until:
            self._tries = True
            self._number += 1
            return self._number
        return self._number if self.state is BreakerState.CLOSED else None

    def succeeded(self, number: int) -> None:
        """The provider answered, if only with a refusal."""
        if number == self._number:
            self.failures = self._openings = 0
            self._tries = False

    def failed(self, number: int, now: float, asked_s: float = 0.0) -> None:
        """``asked_s`` is the pause that the provider asks for."""
        if number != self._number:
            return
        self.failures += 1
        if self._tries or self.failures >= FAILURES_TO_OPEN:
            self._openings += 1
            self._until = now + max(BREAK.pause_s(self._openings), min(asked_s, BREAK.most_s))
            self._tries = False
            self._number += 1

    def abandoned(self, number: int) -> None:
        """The call was cancelled: nothing is known."""
        if number == self._number:
            self._tries = False

    def retry_in_s(self, now: float) -> float:
        """0 when a call may go through now."""
        return max(0.0, self._until - now) if self.state is BreakerState.OPEN else 0.0


log = structlog.get_logger("klaw.llm")


@attrs.frozen(kw_only=True)
class LastError:
    """``text`` is for everybody, ``told``, with the provider's words, for the operator. ``at`` is Trio's time."""

    code: str
    text: str
    told: str
    status: int | None
    at: float


T = TypeVar("T")


class Service:
    """A provider, or one model of it at an address of its own. ``make`` may block, and raises ConfigError."""

    def __init__(self, name: str, make: Callable[[], HttpProvider], threads: Threads) -> None:
        self.problem: str | None = None
        self.error: LastError | None = None
        self.breaker = Breaker()
        self._name, self._make, self._threads = name, make, threads
        self._lock = trio.Lock()
        self._made: HttpProvider | None = None
        self._running: Counter[HttpProvider] = Counter()
        self._closed = False

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        return await self.call(lambda provider: provider.stream(request, on_delta))

    async def call(self, use: Callable[[HttpProvider], Awaitable[T]]) -> T:
        """Make one call. Raises ProviderPaused: it failed too often, nothing was sent; ProviderNotSetUp: a secret is
        missing, the next call looks again; ProviderError of the call."""
        breaker = self.breaker
        permit = breaker.admit(trio.current_time())
        if permit is None:
            await trio.lowlevel.checkpoint()
            again_s = breaker.retry_in_s(trio.current_time())
            when = f"in {again_s:.0f} s" if again_s else "after the trial call"
            last = f"; the last time: {self.error.text}" if self.error is not None else ""
            raise ProviderPaused(f"the LLM provider {self._name} failed several times and is asked again {when}{last}")
        try:
            answer = await self._used(use)
        except ProviderError as error:
            status = error.status if isinstance(error, ProviderRefused) else None
            now = trio.current_time()
            if not isinstance(error, ContextTooLong):
                self.error = LastError(code=error.code, text=str(error), told=error.told(), status=status, at=now)
            if not isinstance(error, ProviderRefused | ProviderTimeout | ProviderNetworkError) or not error.retryable:
                breaker.succeeded(permit)
            else:  # it is down or wants a pause
                breaker.failed(permit, now, getattr(error, "retry_after_s", None) or 0.0)
                if breaker.state is BreakerState.OPEN:
                    failures, retry_s = breaker.failures, breaker.retry_in_s(now)
                    log.warning("llm_provider_paused", provider=self._name, count=failures, retry_s=retry_s)
            raise
        except BaseException:
            breaker.abandoned(permit)
            raise
        breaker.succeeded(permit)
        self.error = None
        return answer

    async def _used(self, use: Callable[[HttpProvider], Awaitable[T]]) -> T:
        provider = await self.ready()
        self._running[provider] += 1
        try:
            return await use(provider)
        finally:
            self._running[provider] -= 1
            if not self._running[provider]:
                del self._running[provider]
                if provider is not self._made:  # it was renewed meanwhile
                    await provider.aclose()  # noqa: ASYNC102 - it shields

    async def renew(self) -> None:
        """Settings or secrets may have changed: then later calls go by them, and running ones end as they began."""
        async with self._lock:
            made = self._made
            if made is not None:
                with suppress(ConfigError):
                    if made.is_like(await self._threads.run(self._make, abandon=True)):
                        return
            self._made = self.problem = self.error = None
            self.breaker = Breaker()
        if made is not None and made not in self._running:
            await made.aclose()

    async def ready(self) -> HttpProvider:
        """Make the provider. Raises ProviderNotSetUp."""
        async with self._lock:
            if self._closed:
                raise ProviderNetworkError("the LLM provider's client is closed")
            if self._made is None:
                try:
                    self._made = await self._threads.run(self._make, abandon=True)
                except ConfigError as error:
                    self.problem = str(error)
                    raise ProviderNotSetUp(self.problem) from None
                self.problem = None
            return self._made

    async def aclose(self) -> None:
        async with self._lock:
            self._closed = True
            made, self._made = self._made, None
        if made is not None:
            await made.aclose()

    def report(self) -> dict[str, Any]:
        now, error = trio.current_time(), self.error
        return {
            "name": self._name,
            "state": self.breaker.state,
            "failures": self.breaker.failures,
            "retry_in_s": round(self.breaker.retry_in_s(now), 1),
            "error": None if error is None else error.told,
            "error_code": None if error is None else error.code,
            "failed_s": None if error is None else round(now - error.at, 1),
            "adapted": {model: list(told) for model, told in getattr(self._made, "adapted", {}).items()},
        }
