"""A service that really listens and speaks (``tests.support.programs.speech_server``), for tests.

KLAW_TEST_LISTENER names a Python that has ``pocketsphinx`` and ``av``; without it, and without espeak-ng, these tests
are skipped."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S

PYTHON = os.environ.get("KLAW_TEST_LISTENER", "")
needs_listener = pytest.mark.skipif(
    not (PYTHON and shutil.which(PYTHON) and shutil.which("espeak-ng")),
    reason="KLAW_TEST_LISTENER names no Python with pocketsphinx and av, or espeak-ng is not installed",
)
SENTENCES = {
    "en": ("what is the capital of france", "where is the red book", "the garden gate is green"),
    "ru": ("завтра будет дождь", "мама мыла раму", "сколько сейчас времени"),
}
"""What it understands, by language."""


@asynccontextmanager
async def listening() -> AsyncIterator[str]:
    """Run the service; its ``baseUrl``."""
    program = REPOSITORY / "tests" / "support" / "programs" / "speech_server.py"
    said = [each for sentences in SENTENCES.values() for each in sentences]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, [PYTHON, str(program), *said], check=False, **quiet))
        with trio.fail_after(HANG_S):
            line = await process.stdout.receive_some()
        yield f"http://127.0.0.1:{json.loads(line)['port']}/v1"
        nursery.cancel_scope.cancel(reason="the test is over")
