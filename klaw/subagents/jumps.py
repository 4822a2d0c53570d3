"""Noticing that the wall clock jumped or the machine slept. Pure.

The monotonic clock stands still while a machine is suspended and knows nothing of a clock that is set; the wall clock
shows both. So the two are compared each time the scheduler wakes.
"""

import attrs

THRESHOLD_S = 5.0
"""Smaller differences are a clock that is being steered, or a thread that had to wait."""


@attrs.frozen(kw_only=True)
class Watch:
    """The two clocks when they were last looked at."""

    wall: float
    """Unix seconds."""
    monotonic: float
    """Seconds of a clock that only goes forward, such as ``trio.current_time``."""

    def look(self, *, wall: float, monotonic: float) -> "Look":
        """Compare with the clocks now. Go on with the look's ``watch``."""
        jump = (wall - self.wall) - (monotonic - self.monotonic)
        return Look(
            watch=Watch(wall=wall, monotonic=monotonic),
            jump_s=jump if abs(jump) >= THRESHOLD_S else 0.0,
        )


@attrs.frozen(kw_only=True)
class Look:
    """What a look at the clocks showed."""

    watch: Watch
    jump_s: float
    """How far the wall clock went beyond the time that passed: positive after suspend or when it was set forward,
    negative when it was set back, 0 when it did not jump."""
