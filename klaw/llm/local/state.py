"""What is known of the embedded model, shared by its process (which writes) and its provider (which reads and waits).

A value cell and no actor: every change is one assignment without an await.
"""

import enum

import attrs
import trio


class LocalState(enum.StrEnum):
    """Where the embedded model stands."""

    STARTING = "starting"
    READY = "ready"
    MISSING = "missing"
    """A file or a package is not there; looked for again from time to time."""
    BROKEN = "broken"
    """The last start failed; the supervisor tries again."""
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where the child process listens. Each start has its own port and key."""

    base_url: str
    key: str = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class LocalReport:
    """What status and admin socket show."""

    state: LocalState
    reason: str
    """What is wrong and what to do, for people; empty when ready."""


class LocalModel:
    """The cell. Starts as STARTING."""

    def __init__(self) -> None:
        self._state = LocalState.STARTING
        self._reason = "the local model has not been started yet"
        self._endpoint: Endpoint | None = None
        self._changed = trio.Event()

    @property
    def state(self) -> LocalState:
        return self._state

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it listens; None unless READY."""
        return self._endpoint

    def report(self) -> LocalReport:
        return LocalReport(state=self._state, reason=self._reason)

    def problems(self, *, only: bool) -> dict[str, str]:
        """Why it cannot answer now, for users. ``only``: chats have no other model first."""
        code = "no_llm" if only else "no_local_llm"
        return {} if self._state is LocalState.READY else {code: self._reason}

    def ready(self, endpoint: Endpoint) -> None:
        """Record that it listens."""
        self._change(LocalState.READY, "", endpoint)

    def not_ready(self, state: LocalState, reason: str) -> None:
        """Record why it does not listen."""
        self._change(state, reason, None)

    async def wait_settled(self) -> Endpoint | None:
        """Wait while it is starting.

        Returns:
            Where it listens, or None when it will not soon (see ``report``).
        """
        await trio.lowlevel.checkpoint()
        while self._state is LocalState.STARTING:
            await self._changed.wait()
        return self._endpoint

    async def wait_gone(self, endpoint: Endpoint) -> None:
        """Wait until it is known not to listen there any more."""
        await trio.lowlevel.checkpoint()
        while self._endpoint is endpoint:
            await self._changed.wait()

    def _change(self, state: LocalState, reason: str, endpoint: Endpoint | None) -> None:
        self._state, self._reason, self._endpoint = state, reason, endpoint
        self._changed.set()
        self._changed = trio.Event()
