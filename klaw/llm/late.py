"""A provider that is made when it is first asked: its key may be in a file, and its HTTP library loads slowly."""

from collections.abc import Callable

import trio

from klaw.actor.threads import Threads
from klaw.errors import ConfigError, ProviderNetworkError, ProviderNotSetUp
from klaw.llm.provider import OnDelta, Provider
from klaw.llm.types import Completion, Request


class LateProvider:
    """See ``klaw.llm.provider.Provider``.

    Args:
        make: makes the provider and looks its secrets up; may block, and raises ConfigError.
        threads: where it is called.
    """

    def __init__(self, make: Callable[[], Provider], threads: Threads) -> None:
        self._make = make
        self._threads = threads
        self._lock = trio.Lock()
        self._made: Provider | None = None
        self._closed = False
        self.problem: str | None = None
        """Why it could not be made when that was last tried."""

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """See ``Provider.stream``.

        Raises:
            ProviderNotSetUp: a secret is missing; the text names its key. The next call looks again.
        """
        provider = await self.ready()
        return await provider.stream(request, on_delta)

    async def ready(self) -> Provider:
        """Make the provider if it is not made yet. Raises like ``stream``."""
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
