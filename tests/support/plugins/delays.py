"""A pytest plugin that finds races: worker threads, those of the store too, begin late now and then.

It is loaded only when it is asked for: ``make test ARGS="-p tests.support.plugins.delays"``.
"""

import queue
import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

CHANCE = 0.15
LONGEST_S = 0.03
_sleep = time.sleep
"""The real one: tests replace it."""


def _delay() -> None:
    if random.random() < CHANCE:
        _sleep(random.random() * LONGEST_S)


class _SlowQueue(queue.SimpleQueue[Any]):
    """What a connection's thread takes its calls from."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        call = super().get(block, timeout)
        _delay()
        return call


def pytest_configure(config: pytest.Config) -> None:
    del config
    run_sync = trio.to_thread.run_sync

    async def run_late(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        def late(*given: Any) -> Any:
            _delay()
            return function(*given)

        return await run_sync(late, *args, **options)

    patch = pytest.MonkeyPatch()
    patch.setattr(trio.to_thread, "run_sync", run_late)
    patch.setattr("apsw.aio.queue", SimpleNamespace(SimpleQueue=_SlowQueue))
