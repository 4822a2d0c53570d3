"""A drill of tools/, run as by hand but shorter."""

import json
import subprocess
import sys
from typing import Any

import trio

from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S


async def drill(script: str, *arguments: str) -> dict[str, Any]:
    """Its report, which names no problem."""
    with trio.fail_after(HANG_S):
        done = await trio.run_process(
            [sys.executable, str(REPOSITORY / "tools" / script), *arguments, "--json"],
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            cwd=REPOSITORY,
        )
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["problems"] == [], report
    assert done.returncode == 0
    return report
