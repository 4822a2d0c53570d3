"""Some seconds of ``tools/attack_http.py``: no error, no crash, no growth."""

import json
import sys

import trio

from tests.support.repository import REPOSITORY
from tests.support.server import clean_environ
from tests.support.waiting import HANG_S


async def test_mutated_requests_break_nothing():
    with trio.fail_after(HANG_S):
        done = await trio.run_process(
            [sys.executable, "tools/attack_http.py", "--requests", "2000", "--connections", "24"],
            capture_stdout=True,
            check=False,
            cwd=REPOSITORY,
            env=clean_environ(),
        )
    found = json.loads(done.stdout[done.stdout.index(b"{") :])
    assert found["problems"] == {}
    assert done.returncode == 0
    assert sum(found["answers"].values()) > 100
    assert found["acks_ms"]["attacked"]["count"] > 0
