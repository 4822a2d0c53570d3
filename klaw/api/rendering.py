"""Texts of messages as HTML. Each request has a child process (``klaw.web.child``), which ends with it: texts can be
made so that they take minutes, and a thread cannot be ended.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence

import trio

from klaw.domain.names import UserId
from klaw.web.child import plain

AT_ONCE = 3
"""Requests of different users."""
CHILDREN = 3
"""For one request: a text at which one ends is shown as it is, and the next goes on behind it."""


class Renderer:
    """Renders one request of each user at a time, in turn."""

    def __init__(self) -> None:
        self._places = trio.CapacityLimiter(AT_ONCE)
        self._turns: defaultdict[UserId, trio.Lock] = defaultdict(trio.Lock)

    async def render(self, user: UserId, texts: Sequence[str]) -> bytes:
        """The HTML of some texts, as JSON: ``{"html": […]}``.

        Cancellation: the child is gone.
        """
        done: list[bytes] = []
        async with self._turns[user], self._places:
            for _ in range(CHILDREN):
                done += await _rendered(texts[len(done) :])
                if len(done) == len(texts):
                    break
                done.append(_plain(texts[len(done)]))
        done += map(_plain, texts[len(done) :])
        return b'{"html": [%b]}' % b", ".join(done)


async def _rendered(texts: Sequence[str]) -> list[bytes]:
    """What a child has done until it ended."""
    try:
        ended = await trio.run_process(
            [sys.executable, "-I", "-B", "-m", "klaw.web.child"],
            stdin=json.dumps(texts).encode(),
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            env={},
            start_new_session=True,
            deliver_cancel=_kill,
        )
    except OSError:  # the system has no process or no memory for it
        return []
    return ended.stdout.split(b"\n")[:-1]


def _plain(text: str) -> bytes:
    return json.dumps(plain(text)).encode()


async def _kill(process: trio.Process) -> None:
    process.kill()
