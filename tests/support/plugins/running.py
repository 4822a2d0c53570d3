"""A server without its listeners, for the tests of admin commands, operations and the command line; a quick clock."""

import math
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import apsw.aio
import pytest
import trio
from trio.testing import MockClock

from tests.support.admin import app, commands, home

__all__ = ["app", "commands", "home"]

QUIET_S = 0.1


@pytest.fixture
def quick_clock(mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Waits on the clock are over when no thread works and nothing has come from a socket for a tenth of a second."""
    mock_clock.autojump_threshold = QUIET_S
    at_work = 0

    def holding(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(call)
        async def held(*args: Any, **kwargs: Any) -> Any:
            nonlocal at_work
            at_work += 1
            mock_clock.autojump_threshold = math.inf
            try:
                return await call(*args, **kwargs)
            finally:
                at_work -= 1
                if not at_work:
                    mock_clock.autojump_threshold = QUIET_S

        return held

    monkeypatch.setattr(apsw.aio.Trio, "send", holding(apsw.aio.Trio.send))
    monkeypatch.setattr(trio.to_thread, "run_sync", holding(trio.to_thread.run_sync))
    return mock_clock
