"""A server without its listeners, for the tests of admin commands, operations and the command line."""

import pytest
from trio.testing import MockClock

from tests.support.admin import app, commands, home

__all__ = ["app", "commands", "home"]


@pytest.fixture
def quick_clock(mock_clock: MockClock) -> MockClock:
    """Waits on the clock are over when nothing has come from a socket or a thread for a tenth of a second."""
    mock_clock.autojump_threshold = 0.1
    return mock_clock
