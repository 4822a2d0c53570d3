"""A configured provider: made when it is first asked (its key may be in a file, and its HTTP library loads slowly), and
left alone for a while when it keeps failing."""

from collections.abc import Callable

import attrs
import structlog
import trio

from klaw.actor.threads import Threads
from klaw.errors import (
    ConfigError,
    ContextTooLong,
    ProviderError,
    ProviderNetworkError,
    ProviderNotSetUp,
    ProviderPaused,
    ProviderRefused,
    ProviderTimeout,
)
from klaw.llm.provider import OnDelta, Provider
from klaw.llm.retry import Breaker, BreakerReport, BreakerState
from klaw.llm.types import Completion, Request

log = structlog.get_logger("klaw.llm")


@attrs.frozen(kw_only=True)
class LastError:
    """Why the last call failed."""

    code: str
    text: str
    """For everybody."""
    told: str
    """With what the provider said: for the operator."""
    status: int | None
    """Of HTTP."""
    at: float
    """``trio.current_time``."""


@attrs.frozen(kw_only=True)
class ProviderReport:
    """What status and the admin socket show of a provider."""

    name: str
    breaker: BreakerReport
    error: LastError | None
    """None when the last call did not fail."""


class Service:
    """See ``klaw.llm.provider.Provider``. While its breaker is open, calls fail at once and nothing is sent.

    Args:
        name: the provider's name in the configuration.
        make: makes the provider and looks its secrets up; may block, and raises ConfigError.
        threads: where it is called.
    """

    def __init__(self, name: str, make: Callable[[], Provider], threads: Threads) -> None:
        self.problem: str | None = None
        """Why it could not be made when that was last tried."""
        self._name = name
        self._make = make
        self._threads = threads
        self._lock = trio.Lock()
        self._made: Provider | None = None
        self._closed = False
        self._breaker = Breaker()
        self._error: LastError | None = None

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """See ``Provider.stream``.

        Raises:
            ProviderPaused: it failed too often; nothing was sent.
            ProviderNotSetUp: a secret is missing; the text names its key. The next call looks again.
        """
        permit = self._breaker.admit(trio.current_time())
        if permit is None:
            await trio.lowlevel.checkpoint()
            again_s = self._breaker.report(trio.current_time()).retry_in_s
            when = f"in {again_s:.0f} s" if again_s else "when the call that tries it has ended"
            last = f"; the last time: {self._error.text}" if self._error is not None else ""
            raise ProviderPaused(f"the LLM provider {self._name} failed several times and is asked again {when}{last}")
        try:
            completion = await (await self.ready()).stream(request, on_delta)
        except ProviderError as error:
            self._note(error)
            if _is_outage(error):
                asked_s = (error.retry_after_s if isinstance(error, ProviderRefused) else None) or 0.0
                self._breaker.failed(permit, trio.current_time(), asked_s)
                self._log_if_open()
            else:
                self._breaker.succeeded(permit)
            raise
        except BaseException:
            self._breaker.abandoned(permit)
            raise
        self._breaker.succeeded(permit)
        self._error = None
        return completion

    async def ready(self) -> Provider:
        """Make the provider if it is not made yet. Raises ProviderNotSetUp, like ``stream``."""
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
        """See ``Provider.aclose``."""
        async with self._lock:
            self._closed = True
            made, self._made = self._made, None
        if made is not None:
            await made.aclose()

    def report(self) -> ProviderReport:
        return ProviderReport(name=self._name, breaker=self._breaker.report(trio.current_time()), error=self._error)

    def _note(self, error: ProviderError) -> None:
        """Keep it for status. That one prompt was too long says nothing of the provider."""
        if not isinstance(error, ContextTooLong):
            self._error = LastError(
                code=error.code,
                text=str(error),
                told=error.told(),
                status=error.status if isinstance(error, ProviderRefused) else None,
                at=trio.current_time(),
            )

    def _log_if_open(self) -> None:
        report = self._breaker.report(trio.current_time())
        if report.state is BreakerState.OPEN:
            log.warning("llm_provider_paused", provider=self._name, count=report.failures, retry_s=report.retry_in_s)


def _is_outage(error: ProviderError) -> bool:
    """Whether an error shows that the provider is down or wants to be left alone, not that one request was wrong."""
    if isinstance(error, ProviderRefused):
        return error.retryable
    return isinstance(error, ProviderTimeout | ProviderNetworkError)
