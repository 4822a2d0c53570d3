"""Put on a server process's PYTHONPATH by tests: it has one more tool, ``wait``, which leaves a file in
``KLAW_TEST_WAIT`` for each call, and waits for ever."""

import os
from pathlib import Path
from typing import Any

import trio

from klaw.toolbox.builtin import time_and_messages
from klaw.toolbox.spec import Permission, ToolContext, tool

_folder = Path(os.environ["KLAW_TEST_WAIT"])
_real = time_and_messages.clock_tools


@tool(permission=Permission.READ)
async def wait(context: ToolContext) -> str:
    """Wait for something."""
    (_folder / f"entered-{context.call}").touch()
    await trio.sleep_forever()
    return "it came"


def _clock_and_wait(*arguments: Any) -> Any:
    return (*_real(*arguments), wait)


time_and_messages.clock_tools = _clock_and_wait
