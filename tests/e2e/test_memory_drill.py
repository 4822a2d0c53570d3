"""Memory is whole after kills in the middle of its changes: tools/memory_drill.py, as by hand but shorter."""

import json
import subprocess
import sys

import trio

from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S

OPERATIONS = ("undo", "draw-topic", "merge-people", "supersede", "forget-message", "forget-derived", "forget-person")


async def test_memory_drill_of_seven_kills() -> None:
    command = [sys.executable, str(REPOSITORY / "tools" / "memory_drill.py"), "--kills", "1", "--seed", "5", "--json"]
    with trio.fail_after(HANG_S):
        done = await trio.run_process(
            [*command, "--only", *OPERATIONS],
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            cwd=REPOSITORY,
        )
    report = json.loads(done.stdout)
    assert report["problems"] == [], report
    assert done.returncode == 0
    assert report["by"] == dict.fromkeys(OPERATIONS, 1)
