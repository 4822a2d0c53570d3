"""What every actor reports about itself: state, current activity and since when, restarts, last error."""

import enum

import attrs

from klaw.actor.clock import Clock
from klaw.actor.mailbox import MailboxReport


class State(enum.StrEnum):
    """Life cycle of a supervised actor."""

    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    """Crashed; the supervisor waits before it starts the next incarnation."""
    FAILED = "failed"
    """Crashed too often; degraded, tried again every few minutes."""
    STOPPING = "stopping"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class ActorReport:
    """A snapshot for the admin socket. Times are Unix seconds."""

    name: str
    parent: str | None
    state: State
    since: float
    activity: str
    activity_since: float
    restarts: int
    last_error: str | None
    """Class name of the last error, never its text."""
    mailbox: MailboxReport | None


class Vitals:
    """The mutable side of a report; the actor sets its activity, the supervisor the rest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.state = State.STARTING
        self.since = clock.now()
        self.activity = "starting"
        self.activity_since = self.since
        self.restarts = 0
        self.last_error: str | None = None

    def enter(self, state: State) -> None:
        self.state = state
        self.since = self._clock.now()
        self.doing(state.value)

    def doing(self, activity: str) -> None:
        """Say in a word or two what the actor does now (no content, no names from outside)."""
        self.activity = activity
        self.activity_since = self._clock.now()
